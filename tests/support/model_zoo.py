"""Small models that hold Embeddings in every way that Keras tracks.

`CASES` says what `compress_model` makes of each, and of the models of
`benchmarks.common.models`.
"""

import collections
import dataclasses
import functools
import warnings

import keras
import numpy as np
from keras.layers import Dense
from keras.layers import Embedding
from keras.layers import GlobalAveragePooling1D

from benchmarks.common import models
from benchmarks.common.models import called
from benchmarks.common.models import ids_input

registered = keras.saving.register_keras_serializable(package="zoo")
SIZE = models.Size(rows=300, width=16, length=8, layers=1)
Pair = collections.namedtuple("Pair", ["first", "second"])


def table(name=None, cls=Embedding, **kwargs):
    return cls(SIZE.rows, SIZE.width, name=name, **kwargs)


def pooled(layer, inputs=None, length=None):
    """A functional model: ids, a layer that gives vectors, scores."""
    ids = ids_input(length=length)
    scores = Dense(3)(GlobalAveragePooling1D()(layer(ids)))
    return keras.Model(ids, scores), SIZE.ids() if inputs is None else inputs


def padded_ids():
    ids = SIZE.ids()
    ids[-1, 2:] = 0
    return ids


# Layers that hold Embeddings.


@registered
class Host(keras.layers.Layer):
    """Holds an Embedding that its constructor makes."""

    def __init__(self, mask_zero=False, **kwargs):
        super().__init__(**kwargs)
        self.mask_zero = mask_zero
        self.words = table(mask_zero=mask_zero)
        self.supports_masking = True

    def build(self, input_shape):
        self.words.build(input_shape)
        self.scale = self.add_weight(
            shape=(SIZE.width,), initializer="ones", name="scale"
        )

    def call(self, ids):
        return self.words(ids) * self.scale

    def compute_mask(self, ids, mask=None):
        return self.words.compute_mask(ids)

    def get_config(self):
        return {**super().get_config(), "mask_zero": self.mask_zero}


@registered
class LateHost(keras.layers.Layer):
    """Makes its Embedding in `build`; Keras makes a config of its argument."""

    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def build(self, input_shape):
        self.words = table("late")
        self.words.build(input_shape)

    def call(self, ids):
        return self.factor * self.words(ids)


@registered
class Collections(keras.layers.Layer):
    """Holds Embeddings in collections of all kinds, and one of them twice."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.listed = [table("first"), table("second")]
        self.fixed = (table("third"),)
        self.named = {"a": table("fourth"), "b": table("fifth")}
        # Keras before 3.15 leaves it out of files, without a word.
        self.nested = {"deep": [table("sixth")]}
        self.by_number = {7: table("seventh")}
        self.pair = Pair(2.0, table("eighth"))
        self.again = (self.listed[1],)

    def call(self, ids):
        tables = [*self.listed, *self.fixed, *self.named.values()]
        tables += [*self.nested["deep"], self.by_number[7], self.again[0]]
        total = sum(table(ids) for table in tables)
        return self.pair.first * total + self.pair.second(ids)


class WithArgument:
    """Has a layer that it is given in its config."""

    argument = "embedding"

    def get_config(self):
        layer = getattr(self, self.argument)
        layer = keras.saving.serialize_keras_object(layer)
        return {"name": self.name, self.argument: layer}

    @classmethod
    def from_config(cls, config):
        layer = keras.saving.deserialize_keras_object(config[cls.argument])
        return cls(**{**config, cls.argument: layer})


@registered
class Given(WithArgument, keras.layers.Layer):
    """Gets an Embedding from outside, and has it in its config."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, ids):
        return self.embedding(ids)


@registered
class TiedDense(Given):
    """Logits: a product with the table of an Embedding, held twice."""

    def __init__(self, embedding, **kwargs):
        super().__init__(embedding, **kwargs)
        self.also = embedding

    def call(self, hidden):
        return keras.ops.matmul(
            hidden, keras.ops.transpose(self.embedding.embeddings)
        )


@registered
class Outer(keras.layers.Layer):
    """Holds a layer that holds a layer that holds an Embedding."""

    def __init__(self, depth=2, **kwargs):
        super().__init__(**kwargs)
        # As TensorFlow names its own attributes.
        self._self_inner = Outer(depth - 1) if depth else Host()

    def build(self, input_shape):
        self._self_inner.build(input_shape)

    def call(self, ids):
        return self._self_inner(ids)


@registered
class EmbeddingCell(keras.layers.Layer):
    """A recurrent cell that looks up an id at each step."""

    state_size = output_size = SIZE.width

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.words = table()

    def build(self, input_shape):
        self.words.build(input_shape)

    def call(self, ids, states):
        vector = self.words(keras.ops.cast(ids[:, 0], "int32"))
        hidden = keras.ops.tanh(vector + 0.5 * states[0])
        return hidden, [hidden]


def called_twice():
    host = Host()
    first, second = ids_input("first"), ids_input("second")
    hidden = host(first) * host(second)
    inputs = {"first": SIZE.ids(), "second": SIZE.ids(seed=1)}
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model({"first": first, "second": second}, scores), inputs


def shared_by_two_layers(table_at):
    """Of most, Keras writes a file that it cannot read."""
    words, ids = table(), ids_input()
    readers = [Given(words, name="one"), Given(words, name="other")]
    if table_at is not None:
        readers.insert(table_at, words)
    hidden = sum(reader(ids) for reader in readers)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model(ids, scores), SIZE.ids()


def tied_dense():
    words, ids = table("words"), ids_input()
    hidden = Dense(SIZE.width)(words(ids))
    return keras.Model(ids, TiedDense(words)(hidden)), SIZE.ids()


def time_distributed():
    ids = keras.Input((SIZE.length,), dtype="int32")
    sentence = keras.Sequential([ids, table(), GlobalAveragePooling1D()])
    ids = keras.Input((3, SIZE.length), dtype="int32")
    hidden = keras.layers.TimeDistributed(sentence)(ids)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    inputs = SIZE.ids(3 * SIZE.length).reshape(-1, 3, SIZE.length)
    return keras.Model(ids, scores), inputs


def bidirectional():
    ids = keras.Input((SIZE.length, 1), dtype="int32")
    both = keras.layers.Bidirectional(keras.layers.RNN(EmbeddingCell()))
    return keras.Model(ids, Dense(3)(both(ids))), SIZE.ids()[..., None]


def nested_models():
    inner = keras.Sequential([Host(), Dense(SIZE.width)], name="inner")
    outer = keras.Sequential([inner], name="outer")
    return pooled(outer, length=SIZE.length)


# Models of classes of their own.


@registered
class Backbone(keras.Model):
    """A functional model that its own constructor makes."""

    def __init__(self, units=SIZE.width, **kwargs):
        self.words = table("words")
        ids = keras.Input((None,), dtype="int32", name="ids")
        super().__init__(ids, Dense(units)(self.words(ids)), **kwargs)
        self.units = units

    def logits(self, hidden):
        table = keras.ops.transpose(self.words.embeddings)
        return keras.ops.matmul(hidden, table)

    def get_config(self):
        base = {"name": self.name, "trainable": self.trainable}
        return {**base, "units": self.units}


@registered
class Task(WithArgument, keras.Model):
    """Holds a backbone, of which its config tells."""

    argument = "backbone"

    def __init__(self, backbone, **kwargs):
        scores = Dense(3)(backbone(backbone.input))
        super().__init__(backbone.input, scores, **kwargs)
        self.backbone = backbone


class Scores(keras.layers.Layer):
    """Reads a table that it is given, of which no config tells."""

    def __init__(self, table, **kwargs):
        super().__init__(**kwargs)
        self.table = table

    def call(self, ids):
        vectors = self.table(ids)
        table = keras.ops.transpose(self.table.embeddings)
        return keras.ops.matmul(vectors, table)


@registered
class MakesAll(keras.Model):
    """Has no arguments; makes layers that could not be made again alone."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tables = [table(), Host()]
        self.scores = Scores(self.tables[0])
        self.body = keras.Sequential([GlobalAveragePooling1D(), Dense(3)])

    def call(self, ids, training=False):
        hidden = sum(table(ids) for table in self.tables)
        return self.body(hidden), self.scores(ids)


@registered
class Stack(keras.Sequential):
    """A Sequential model with a constructor of its own."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        for layer in ids_input(), table(), GlobalAveragePooling1D():
            self.add(layer)
        self.add(Dense(units))

    def get_config(self):
        return {"name": self.name, "units": self.units}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@registered
class Taking(keras.Model):
    """A subclassed model that gets its layers, and has no `get_config`."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, ids):
        return keras.ops.mean(self.embedding(ids), axis=1)


@registered
class TakingWithConfig(WithArgument, Taking):
    """Same, with a `get_config`."""


def subclassed_inside():
    ids = ids_input(length=SIZE.length)
    hidden = models.TextModel(SIZE.rows, SIZE.width, SIZE.width)(ids)
    return keras.Model(ids, Dense(3)(hidden)), SIZE.ids()


# Relatives of Embedding.


@registered
class NamedEmbedding(Embedding):
    """An Embedding with one more method."""

    def norms(self):
        return keras.ops.norm(self.embeddings, axis=-1)


@registered
class DoubledEmbedding(Embedding):
    """An Embedding with a call of its own."""

    def call(self, ids):
        return 2 * super().call(ids)


def reversible(**kwargs):
    words = table(cls=keras.layers.ReversibleEmbedding, **kwargs)
    ids = ids_input()
    hidden = Dense(SIZE.width)(words(ids))
    return keras.Model(ids, words(hidden, reverse=True)), SIZE.ids()


def quantized():
    model, inputs = pooled(Host())
    with warnings.catch_warnings():
        # Of inputs and means, which have nothing to quantize.
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model, inputs


def quantized_table():
    model, inputs = pooled(host := Host())
    host.words.quantize("int4")
    return model, inputs


def with_lora():
    model, inputs = pooled(host := Host())
    host.words.enable_lora(4)
    for seed, weight in enumerate(host.words.trainable_weights):
        weight.assign(keras.random.normal(weight.shape, seed=seed))
    return model, inputs


# Tables that only a pooling reads, words in front, and keras-rs.


def pooled_tables():
    """Means and sums of all kinds, two of them by one layer."""
    first, second = ids_input("first"), ids_input("second")
    pool = GlobalAveragePooling1D(keepdims=True)
    parts = [pool(table(mask_zero=True)(first)), pool(table()(second))]
    parts.append(keras.ops.mean(table()(first), axis=1, keepdims=True))
    hidden = keras.layers.Concatenate()(parts)
    hidden = Dense(SIZE.width)(keras.layers.Flatten()(hidden))
    scores = Dense(3)(hidden + keras.ops.sum(table()(second), axis=1))
    inputs = {"first": padded_ids(), "second": SIZE.ids(seed=1)}
    return keras.Model({"first": first, "second": second}, scores), inputs


def behind_words(lookup, **kwargs):
    """A model of one word each, or a text of one word."""
    words = [f"word{number}" for number in range(SIZE.rows - 2)]
    text = keras.Input((1,), dtype="string")
    hidden = Host()(lookup(vocabulary=words, **kwargs)(text))
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    places = np.random.default_rng(0).integers(len(words), size=(4, 1))
    return keras.Model(text, scores), np.array(words, object)[places]


def embed_reduce():
    from keras_rs.layers import EmbedReduce

    ids = ids_input()
    scores = Dense(3)(table(cls=EmbedReduce)(ids))
    return keras.Model(ids, scores), SIZE.ids()


def embed_reduce_in_layer():
    """A sum in a layer, of ids of which some are padding."""
    from keras_rs.layers import EmbedReduce

    layer = table(cls=EmbedReduce, mask_zero=True, combiner="sum")
    ids = ids_input()
    return keras.Model(ids, Dense(3)(Given(layer)(ids))), padded_ids()


def distributed_embedding():
    import keras_rs

    items = keras_rs.layers.TableConfig("items", SIZE.rows, SIZE.width)
    shapes = [(SIZE.batch, number) for number in (SIZE.length, SIZE.width)]
    feature = keras_rs.layers.FeatureConfig("item", items, *shapes)
    ids = keras.Input(batch_shape=shapes[0], dtype="int32", name="item")
    layer = keras_rs.layers.DistributedEmbedding({"item": feature})
    vectors = layer({"item": ids})["item"]
    return keras.Model({"item": ids}, Dense(3)(vectors)), {"item": SIZE.ids()}


# What is done where a model is refused: functions of the model.


def table_then_rest(model):
    """An Embedding, and what its subclass did besides as another layer."""
    ids = ids_input()
    hidden = keras.layers.Rescaling(2.0)(table()(ids))
    new = keras.Model(ids, Dense(3)(GlobalAveragePooling1D()(hidden)))
    new.set_weights(model.get_weights())
    return new


def with_config(model):
    """The same layers in a class that has a `get_config`."""
    return called(TakingWithConfig(model.embedding), SIZE.ids())[0]


def from_ids(model):
    """The part of a model behind the look-up of words."""
    lookup = next(x for x in model.layers if hasattr(x, "get_vocabulary"))
    return keras.Model(lookup.output, model.outputs), lookup


# What comes of them.


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and what is made of it."""

    name: str
    # Returns a model and inputs.
    make: object
    # Tables that codes replace.
    codes: int = 1
    # The package without which it is skipped.
    needs: str | None = None
    # Part of the error of `compress_model`, and what makes of a model that is
    # refused one that is not.
    refused: str | None = None
    remedy: object = None
    # Part of the error of `export_litert`.
    not_exported: str | None = None
    # Whether its file takes texts of any length.
    open_length: bool = True


def _of_benchmarks(functions, needs=None):
    numbers = {"wide_and_deep": 40, "two_tower": 2, "seq2seq": 2, "dlrm": 4}
    numbers["llama_causal_lm"] = 2
    for function in functions:
        name = function.__name__
        make = functools.partial(function, SIZE)
        yield Case(name, make, numbers.get(name, 1), needs)


def _pooled(name, make_layer, codes=1, **kwargs):
    return Case(name, lambda: pooled(make_layer()), codes, **kwargs)


def _called(name, make_model, codes=1, **kwargs):
    return Case(name, lambda: called(make_model(), SIZE.ids()), codes, **kwargs)


_RS = {"needs": "keras_rs"}
CASES = (
    *_of_benchmarks(models.PLAIN),
    *_of_benchmarks(models.HUB, "keras_hub"),
    *_of_benchmarks(models.RS, "keras_rs"),
    _pooled("in_layer", Host),
    Case("in_layer_with_mask", lambda: pooled(Host(True), padded_ids())),
    _pooled("made_in_build", LateHost),
    _pooled("in_collections", Collections, 8),
    _pooled("given_to_layer", lambda: Given(table())),
    _pooled("three_deep", Outer),
    Case("called_twice", called_twice),
    Case("shared_by_two_layers", lambda: shared_by_two_layers(0)),
    Case("shared_by_two_layers_alone", lambda: shared_by_two_layers(None)),
    Case("shared_with_the_table_last", lambda: shared_by_two_layers(2)),
    Case("tied_dense", tied_dense),
    Case("time_distributed", time_distributed),
    Case("bidirectional", bidirectional, 2),
    Case("nested_models", nested_models),
    _called("functional_subclass", Backbone),
    _pooled("functional_subclass_inside", Backbone),
    _called("task", lambda: Task(Backbone(5))),
    _called("makes_all", MakesAll, 2),
    _called("sequential_subclass", lambda: Stack(3)),
    Case("subclassed_inside", subclassed_inside),
    _called(
        "taking_layers",
        lambda: Taking(table()),
        refused="get_config",
        remedy=with_config,
    ),
    _pooled("methods_only", lambda: table(cls=NamedEmbedding)),
    _pooled(
        "own_call",
        lambda: table(cls=DoubledEmbedding),
        refused="DoubledEmbedding",
        remedy=table_then_rest,
    ),
    Case("reversible", reversible),
    Case(
        "reversible_untied",
        lambda: reversible(tie_weights=False, logit_soft_cap=2.0),
        2,
    ),
    Case("quantized", quantized, not_exported="8-bit"),
    Case("quantized_table", quantized_table),
    Case("with_lora", with_lora),
    Case(
        "string_lookup",
        lambda: behind_words(keras.layers.StringLookup),
        not_exported="begins behind",
    ),
    Case(
        "text_vectorization",
        lambda: behind_words(
            keras.layers.TextVectorization, output_sequence_length=SIZE.length
        ),
    ),
    Case("pooled_tables", pooled_tables, 4),
    Case("embed_reduce", embed_reduce, **_RS),
    Case("embed_reduce_in_layer", embed_reduce_in_layer, **_RS),
    Case(
        "distributed_embedding",
        distributed_embedding,
        open_length=False,
        **_RS,
    ),
)


def make(name):
    """The model of a case, and inputs."""
    (case,) = (case for case in CASES if case.name == name)
    return case.make()
