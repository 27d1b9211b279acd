"""Layers and models that hold Embedding layers in many ways."""

import collections

import keras
import numpy as np

layers = keras.layers
register = keras.saving.register_keras_serializable(package="hosts")
ROWS, WIDTH, LENGTH = 60, 8, 5
Pair = collections.namedtuple("Pair", ["first", "second"])


def embedding(name):
    return layers.Embedding(ROWS, WIDTH, name=name, mask_zero=True)


@register
class Attributes(layers.Layer):
    """Like keras-hub's TokenAndPositionEmbedding. Keras makes up its config."""

    def __init__(self, scale=2.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.supports_masking = True
        self.tokens = embedding("tokens")
        self._positions = layers.Embedding(LENGTH, WIDTH, name="positions")

    def build(self, input_shape):
        self.tokens.build(input_shape)
        self._positions.build(input_shape)

    def call(self, inputs):
        places = keras.ops.arange(LENGTH)
        return self.tokens(inputs) * self.scale + self._positions(places)


@register
class MadeInBuild(layers.Layer):
    def build(self, input_shape):
        self.tokens = embedding("tokens")
        self.tokens.build(input_shape)

    def call(self, inputs):
        return self.tokens(inputs)


@register
class Collections(layers.Layer):
    """Lists in dicts, tuples, keys that are numbers, a layer held twice."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tables = {
            "few": [layers.Embedding(ROWS, WIDTH), embedding("tokens")]
        }
        self.by_number = {7: layers.Embedding(ROWS, WIDTH, name="seventh")}
        self.pair = Pair(layers.Dense(WIDTH), embedding("second"))
        self.again = (self.tables["few"][1],)

    def build(self, input_shape):
        for table in (
            *self.tables["few"],
            *self.by_number.values(),
            self.pair.second,
        ):
            table.build(input_shape)
        self.pair.first.build((*input_shape, WIDTH))

    def call(self, inputs):
        total = self.again[0](inputs) + self.by_number[7](inputs)
        for table in self.tables["few"]:
            total += table(inputs)
        return self.pair.first(total) + self.pair.second(inputs)


@register
class Graph(keras.Model):
    """A functional model whose constructor makes it, like a backbone."""

    def __init__(self, units=4, **kwargs):
        tokens = embedding("tokens")
        inputs = keras.Input((LENGTH,), dtype="int32", name="ids")
        other = tokens((inputs + 1) % ROWS)
        x = layers.Add()([tokens(inputs), other])
        outputs = layers.Dense(units)(layers.GlobalAveragePooling1D()(x))
        super().__init__(inputs, outputs, **kwargs)
        self.units = units
        self.tokens = tokens

    def twice(self, inputs):
        return 2 * self(inputs)

    def get_config(self):
        return {"name": self.name, "units": self.units}


@register
class Task(keras.Model):
    """Holds a backbone, of which its config tells."""

    def __init__(self, backbone, **kwargs):
        outputs = layers.Dense(3)(backbone(backbone.input))
        super().__init__(backbone.input, outputs, **kwargs)
        self.backbone = backbone

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"name": self.name, "backbone": backbone}

    @classmethod
    def from_config(cls, config):
        backbone = keras.saving.deserialize_keras_object(config["backbone"])
        return cls(**{**config, "backbone": backbone})


@register
class Subclassed(keras.Model):
    """Keras makes up its config."""

    def __init__(self, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.depth = depth
        self.attributes = [Attributes() for _ in range(depth)]
        self.graph = Graph(WIDTH)
        self.tower = keras.Sequential([embedding("tokens"), layers.Dense(8)])
        self.head = layers.Dense(3)

    def call(self, inputs):
        x = self.graph(inputs)[:, None] + self.tower(inputs)
        for layer in self.attributes:
            x += layer(inputs)
        return self.head(x)

    def twice(self, inputs):
        return 2 * self(inputs)


@register
class Tower(keras.Sequential):
    """A Sequential with a method."""

    def twice(self, inputs):
        return 2 * self(inputs)


def in_functional(layer, length=(LENGTH,)):
    inputs = keras.Input(length, dtype="int32")
    outputs = layers.Dense(2)(layer(inputs))
    return keras.Model(inputs, outputs)


def subclassed():
    model = Subclassed()
    model(np.zeros((1, LENGTH), "int32"))
    return model


def distributed():
    tower = keras.Sequential(
        [embedding("tokens"), layers.GlobalAveragePooling1D()]
    )
    return in_functional(layers.TimeDistributed(tower), (3, LENGTH))


def tower():
    return Tower([keras.Input((LENGTH,), dtype="int32"), embedding("tokens")])


# Name to a function that makes a model, and how many tables it has.
HOSTS = {
    "attributes": (lambda: in_functional(Attributes(name="host")), 2),
    "build": (lambda: in_functional(MadeInBuild(name="host")), 1),
    "collections": (lambda: in_functional(Collections(name="host")), 4),
    "distributed": (distributed, 1),
    "graph": (lambda: Graph(3, name="graph"), 1),
    "graph inside": (lambda: in_functional(Graph(3, name="graph")), 1),
    "sequential": (tower, 1),
    "subclassed": (subclassed, 6),
    "task": (lambda: Task(Graph(3)), 1),
}
