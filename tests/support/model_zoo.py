"""Small models that hold Embeddings in every way that Keras tracks.

Each function takes a `Size` and returns a model and inputs that it takes, as
those of `benchmarks.common.models`, which are here too. `CASES` says what
`compress_model` makes of each.
"""

import collections
import dataclasses
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


def pooled(layer, size=SIZE, length=None):
    """A functional model: ids, a layer that gives vectors, scores."""
    ids = ids_input(length=length)
    scores = Dense(3)(GlobalAveragePooling1D()(layer(ids)))
    return keras.Model(ids, scores), size.ids()


# Layers that hold Embeddings.


@registered
class Host(keras.layers.Layer):
    """Holds an Embedding that its constructor makes."""

    def __init__(self, rows, width, mask_zero=False, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.width, self.mask_zero = rows, width, mask_zero
        self.words = Embedding(rows, width, mask_zero=mask_zero)
        self.supports_masking = True

    def build(self, input_shape):
        self.words.build(input_shape)
        self.scale = self.add_weight(
            shape=(self.width,), initializer="ones", name="scale"
        )

    def call(self, ids):
        return self.words(ids) * self.scale

    def compute_mask(self, ids, mask=None):
        return self.words.compute_mask(ids)

    def get_config(self):
        own = {name: getattr(self, name) for name in ("rows", "width")}
        return {**super().get_config(), **own, "mask_zero": self.mask_zero}


@registered
class PlainHost(keras.layers.Layer):
    """Same, without a `get_config`: Keras makes one of plain arguments."""

    def __init__(self, rows, width, **kwargs):
        super().__init__(**kwargs)
        self.words = Embedding(rows, width)

    def call(self, ids):
        return self.words(ids)


@registered
class LateHost(keras.layers.Layer):
    """Makes its Embedding in `build`."""

    def __init__(self, rows, width, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.width = rows, width

    def build(self, input_shape):
        self.words = Embedding(self.rows, self.width, name="late")
        self.words.build(input_shape)

    def call(self, ids):
        return self.words(ids)

    def get_config(self):
        own = {"rows": self.rows, "width": self.width}
        return {**super().get_config(), **own}


@registered
class Collections(keras.layers.Layer):
    """Holds Embeddings in collections of all kinds, and one of them twice."""

    def __init__(self, rows, width, **kwargs):
        super().__init__(**kwargs)

        def table(name):
            return Embedding(rows, width, name=name)

        self.listed = [table("first"), table("second")]
        self.fixed = (table("third"),)
        self.named = {"a": table("fourth"), "b": table("fifth")}
        self.nested = {"deep": [table("sixth")]}
        self.by_number = {7: table("seventh")}
        self.pair = Pair(2.0, table("eighth"))
        self.again = (self.listed[1],)

    def call(self, ids):
        tables = [*self.listed, *self.fixed, *self.named.values()]
        tables += [*self.nested["deep"], self.by_number[7], self.again[0]]
        total = sum(table(ids) for table in tables)
        return self.pair.first * total + self.pair.second(ids)


@registered
class NamedAsTensorFlowNames(keras.layers.Layer):
    """Has an attribute named as TensorFlow names its own."""

    def __init__(self, rows, width, **kwargs):
        super().__init__(**kwargs)
        self._self_table = Embedding(rows, width)

    def call(self, ids):
        return self._self_table(ids)


@registered
class Given(keras.layers.Layer):
    """Gets an Embedding from outside, and has it in its config."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, ids):
        return self.embedding(ids)

    def get_config(self):
        embedding = keras.saving.serialize_keras_object(self.embedding)
        return {**super().get_config(), "embedding": embedding}

    @classmethod
    def from_config(cls, config):
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        return cls(**{**config, "embedding": embedding})


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

    def __init__(self, rows, width, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.inner = (
            Outer(rows, width, depth - 1) if depth else Host(rows, width)
        )

    def build(self, input_shape):
        self.inner.build(input_shape)

    def call(self, ids):
        return self.inner(ids)


@registered
class EmbeddingCell(keras.layers.Layer):
    """A recurrent cell that looks up an id at each step."""

    def __init__(self, rows, units, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.units = rows, units
        self.state_size = self.output_size = units
        self.words = Embedding(rows, units)

    def build(self, input_shape):
        self.words.build(input_shape)

    def call(self, ids, states):
        vector = self.words(keras.ops.cast(ids[:, 0], "int32"))
        hidden = keras.ops.tanh(vector + 0.5 * states[0])
        return hidden, [hidden]

    def get_config(self):
        own = {"rows": self.rows, "units": self.units}
        return {**super().get_config(), **own}


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


def in_layer(size):
    return pooled(Host(size.rows, size.width), size)


def in_layer_with_mask(size):
    model, ids = pooled(Host(size.rows, size.width, mask_zero=True), size)
    ids[-1, 2:] = 0
    return model, ids


def in_layer_without_config(size):
    return pooled(PlainHost(size.rows, size.width), size)


def made_in_build(size):
    return pooled(LateHost(size.rows, size.width), size)


def in_collections(size):
    return pooled(Collections(size.rows, size.width), size)


def given_to_layer(size):
    return pooled(Given(Embedding(size.rows, size.width)), size)


def named_as_tensorflow_names(size):
    return pooled(NamedAsTensorFlowNames(size.rows, size.width), size)


def three_deep(size):
    return pooled(Outer(size.rows, size.width), size)


def called_twice(size):
    host = Host(size.rows, size.width)
    first, second = ids_input("first"), ids_input("second")
    hidden = host(first) * host(second)
    inputs = {"first": size.ids(), "second": size.ids(seed=1)}
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model({"first": first, "second": second}, scores), inputs


def shared_by_two_layers(size):
    table = Embedding(size.rows, size.width)
    ids = ids_input()
    hidden = table(ids)
    for name in ("one", "other"):
        hidden = hidden * Given(table, name=name)(ids)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model(ids, scores), size.ids()


def shared_by_two_layers_alone(size):
    """Keras writes such a file, and cannot read it."""
    table = Embedding(size.rows, size.width)
    ids = ids_input()
    hidden = Given(table, name="one")(ids) + Given(table, name="other")(ids)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model(ids, scores), size.ids()


def shared_with_the_table_last(size):
    """Files of the model itself do not load."""
    table = Embedding(size.rows, size.width)
    ids = ids_input()
    hidden = Given(table, name="one")(ids) + Given(table, name="other")(ids)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden + table(ids)))
    return keras.Model(ids, scores), size.ids()


def tied_dense(size):
    table = Embedding(size.rows, size.width, name="words")
    ids = ids_input()
    hidden = Dense(size.width)(table(ids))
    return keras.Model(ids, TiedDense(table)(hidden)), size.ids()


def time_distributed(size):
    sentence = keras.Sequential(
        [
            keras.Input((size.length,), dtype="int32"),
            Embedding(size.rows, size.width),
            GlobalAveragePooling1D(),
        ]
    )
    ids = keras.Input((3, size.length), dtype="int32")
    hidden = keras.layers.TimeDistributed(sentence)(ids)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    rng = np.random.default_rng(0)
    shape = (size.batch, 3, size.length)
    inputs = rng.integers(size.rows, size=shape, dtype="int32")
    return keras.Model(ids, scores), inputs


def bidirectional(size):
    ids = keras.Input((size.length, 1), dtype="int32")
    both = keras.layers.Bidirectional(
        keras.layers.RNN(EmbeddingCell(size.rows, size.width))
    )
    return keras.Model(ids, Dense(3)(both(ids))), size.ids()[..., None]


def nested_models(size):
    inner = keras.Sequential(
        [Host(size.rows, size.width), Dense(size.width)], name="inner"
    )
    return pooled(keras.Sequential([inner], name="outer"), size, size.length)


# Models of classes of their own.


@registered
class FreeModel(keras.Model):
    """A subclassed model without arguments, and so without a config."""

    def __init__(self, rows=SIZE.rows, width=SIZE.width, **kwargs):
        super().__init__(**kwargs)
        self.tables = [Embedding(rows, width), Host(rows, width)]
        self.body = keras.Sequential(
            [GlobalAveragePooling1D(), Dense(3)], name="body"
        )

    def call(self, inputs, training=False):
        return self.body(sum(table(inputs) for table in self.tables))


@registered
class Backbone(keras.Model):
    """A functional model that its own constructor makes."""

    def __init__(self, rows, width, **kwargs):
        self.words = Embedding(rows, width, name="words")
        ids = keras.Input((None,), dtype="int32", name="ids")
        super().__init__(ids, Dense(width)(self.words(ids)), **kwargs)
        self.rows, self.width = rows, width

    def logits(self, hidden):
        table = keras.ops.transpose(self.words.embeddings)
        return keras.ops.matmul(hidden, table)

    def get_config(self):
        base = {"name": self.name, "trainable": self.trainable}
        return {**base, "rows": self.rows, "width": self.width}


@registered
class Task(keras.Model):
    """Holds a backbone, of which its config tells."""

    def __init__(self, backbone, **kwargs):
        scores = Dense(3)(backbone(backbone.input))
        super().__init__(backbone.input, scores, **kwargs)
        self.backbone = backbone

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"name": self.name, "backbone": backbone}

    @classmethod
    def from_config(cls, config):
        backbone = keras.saving.deserialize_keras_object(config["backbone"])
        return cls(**{**config, "backbone": backbone})


@registered
class MakesAll(keras.Model):
    """Makes layers that no config tells of, and that share a table."""

    def __init__(self, rows=SIZE.rows, width=SIZE.width, **kwargs):
        super().__init__(**kwargs)
        self.table = Embedding(rows, width)
        self.scores = Scores(self.table)

    def call(self, ids):
        return self.scores(ids)


class Scores(keras.layers.Layer):
    """Reads a table that it is given."""

    def __init__(self, table, **kwargs):
        super().__init__(**kwargs)
        self.table = table

    def call(self, ids):
        vectors = self.table(ids)
        table = keras.ops.transpose(self.table.embeddings)
        return keras.ops.matmul(vectors, table)


@registered
class Stack(keras.Sequential):
    """A Sequential model with a constructor of its own."""

    def __init__(self, rows, width, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.width = rows, width
        self.add(ids_input())
        self.add(Embedding(rows, width))
        self.add(GlobalAveragePooling1D())

    def first(self):
        return self.layers[0]

    def get_config(self):
        return {"name": self.name, "rows": self.rows, "width": self.width}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@registered
class Taking(keras.Model):
    """A subclassed model that gets its layers, and has no `get_config`."""

    def __init__(self, words, **kwargs):
        super().__init__(**kwargs)
        self.words = words

    def call(self, ids):
        return keras.ops.mean(self.words(ids), axis=1)


@registered
class TakingWithConfig(Taking):
    def get_config(self):
        words = keras.saving.serialize_keras_object(self.words)
        return {**super().get_config(), "words": words}

    @classmethod
    def from_config(cls, config):
        words = keras.saving.deserialize_keras_object(config.pop("words"))
        return cls(words, **config)


def subclassed_without_arguments(size):
    return called(FreeModel(), size.ids())


def functional_subclass(size):
    return Backbone(size.rows, size.width), size.ids()


def functional_subclass_inside(size):
    return pooled(Backbone(size.rows, size.width), size)


def task(size):
    return Task(Backbone(size.rows, size.width)), size.ids()


def makes_all(size):
    return called(MakesAll(), size.ids())


def sequential_subclass(size):
    return called(Stack(size.rows, size.width), size.ids())


def subclassed_inside(size):
    ids = ids_input(length=size.length)
    hidden = models.TextModel(size.rows, size.width, size.width)(ids)
    return keras.Model(ids, Dense(3)(hidden)), size.ids()


def taking_layers(size):
    return called(Taking(Embedding(size.rows, size.width)), size.ids())


# Relatives of Embedding.


def methods_only(size):
    return pooled(NamedEmbedding(size.rows, size.width), size)


def own_call(size):
    return pooled(DoubledEmbedding(size.rows, size.width), size)


def reversible(size, **kwargs):
    table = keras.layers.ReversibleEmbedding(size.rows, size.width, **kwargs)
    ids = ids_input()
    hidden = Dense(size.width)(table(ids))
    return keras.Model(ids, table(hidden, reverse=True)), size.ids()


def reversible_untied(size):
    return reversible(size, tie_weights=False, logit_soft_cap=2.0)


def quantized(size):
    model, inputs = in_layer(size)
    with warnings.catch_warnings():
        # Of inputs and means, which have nothing to quantize.
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model, inputs


def quantized_table(size):
    host = Host(size.rows, size.width)
    model, inputs = pooled(host, size)
    host.words.quantize("int4")
    return model, inputs


def with_lora(size):
    host = Host(size.rows, size.width)
    model, inputs = pooled(host, size)
    host.words.enable_lora(4)
    host.words.lora_embeddings_a.assign(
        keras.random.normal((size.rows, 4), seed=1)
    )
    host.words.lora_embeddings_b.assign(
        keras.random.normal((4, size.width), seed=2)
    )
    return model, inputs


# Tables that only a pooling reads, words in front, and keras-rs.


def pooled_tables(size):
    """Means and sums of all kinds, two of them by one layer."""
    first, second = ids_input("first"), ids_input("second")
    pool = GlobalAveragePooling1D(keepdims=True)

    def rows(ids, **kwargs):
        return Embedding(size.rows, size.width, **kwargs)(ids)

    parts = [pool(rows(first, mask_zero=True)), pool(rows(second))]
    parts.append(keras.ops.mean(rows(first), axis=1, keepdims=True))
    hidden = keras.layers.Concatenate()(parts)
    hidden = Dense(size.width)(keras.layers.Flatten()(hidden))
    scores = Dense(3)(hidden + keras.ops.sum(rows(second), axis=1))
    inputs = {"first": size.ids(), "second": size.ids(seed=1)}
    inputs["first"][-1, 2:] = 0
    return keras.Model({"first": first, "second": second}, scores), inputs


def words_of(size):
    return [f"word{number}" for number in range(size.rows - 2)]


def texts_of(size):
    words = np.array(words_of(size), object)
    return words[np.random.default_rng(0).integers(len(words), size=(4, 1))]


def string_lookup(size):
    words = keras.Input((1,), dtype="string")
    lookup = keras.layers.StringLookup(vocabulary=words_of(size))
    hidden = Host(size.rows, size.width)(lookup(words))
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model(words, scores), texts_of(size)


def text_vectorization(size):
    text = keras.Input((1,), dtype="string")
    ids = keras.layers.TextVectorization(
        vocabulary=words_of(size), output_sequence_length=size.length
    )(text)
    hidden = Host(size.rows, size.width)(ids)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model(text, scores), texts_of(size)


def embed_reduce(size):
    import keras_rs

    ids = ids_input()
    layer = keras_rs.layers.EmbedReduce(size.rows, size.width)
    return keras.Model(ids, Dense(3)(layer(ids))), size.ids()


def embed_reduce_in_layer(size):
    """A sum in a layer, of ids of which some are padding."""
    import keras_rs

    layer = keras_rs.layers.EmbedReduce(
        size.rows, size.width, mask_zero=True, combiner="sum"
    )
    ids = ids_input()
    scores = Dense(3)(Given(layer)(ids))
    inputs = size.ids()
    inputs[-1, 2:] = 0
    return keras.Model(ids, scores), inputs


def distributed_embedding(size):
    import keras_rs

    table = keras_rs.layers.TableConfig("items", size.rows, size.width)
    shape = (size.batch, size.length)
    feature = keras_rs.layers.FeatureConfig(
        "item", table, shape, (size.batch, size.width)
    )
    ids = keras.Input(
        (size.length,), batch_size=size.batch, dtype="int32", name="item"
    )
    layer = keras_rs.layers.DistributedEmbedding({"item": feature})
    vectors = layer({"item": ids})["item"]
    return keras.Model({"item": ids}, Dense(3)(vectors)), {"item": size.ids()}


RS = (embed_reduce, embed_reduce_in_layer, distributed_embedding)


# What is done where a model is refused: functions of the model.


def table_then_rest(model):
    """An Embedding, and what its subclass did besides as another layer."""
    table, *rest = model.get_weights()
    ids = ids_input()
    hidden = keras.layers.Rescaling(2.0)(Embedding(*table.shape)(ids))
    new = keras.Model(ids, Dense(3)(GlobalAveragePooling1D()(hidden)))
    new.set_weights([table, *rest])
    return new


def with_config(model):
    """The same layers in a class that has a `get_config`."""
    new = TakingWithConfig(model.words)
    new(np.zeros((1, 2), "int32"))
    return new


def from_ids(model):
    """The part of a model behind the look-up of words."""
    lookup = next(x for x in model.layers if hasattr(x, "get_vocabulary"))
    return keras.Model(lookup.output, model.output), lookup


# What comes of them.


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and what is made of it.

    Args:
        make: Function of a `Size` that returns a model and inputs.
        codes: Integer, tables that codes replace. Defaults to `1`.
        refused: Regular expression, the error of `compress_model`, or None.
        remedy: Function of a model that is refused; returns one that is not.
        not_exported: Regular expression, the error of `export_litert`.
        open_length: Boolean, whether its file takes texts of any length.
    """

    make: object
    codes: int = 1
    refused: str | None = None
    remedy: object = None
    not_exported: str | None = None
    open_length: bool = True

    @property
    def name(self):
        return self.make.__name__

    def __str__(self):
        return self.name

    @property
    def needs(self):
        """The package without which it is skipped, or None."""
        if self.make in models.HUB:
            return "keras_hub"
        return "keras_rs" if self.make in (*models.RS, *RS) else None


_OPEN_AXES = {"open_length": False, "not_exported": "input_signature"}

CASES = (
    Case(models.two_tower, 2),
    Case(models.two_tower_shared),
    Case(models.wide_and_deep, 40),
    Case(models.seq2seq, 2),
    Case(models.subclassed),
    Case(models.tied_language_model),
    Case(models.token_and_position),
    Case(models.transformer_classifier),
    Case(models.bert_backbone),
    Case(models.bert_classifier),
    Case(models.bert_masked_lm),
    Case(models.gpt2_backbone),
    Case(models.gpt2_causal_lm),
    Case(models.llama_causal_lm, 2, **_OPEN_AXES),
    Case(models.gemma_causal_lm, **_OPEN_AXES),
    Case(models.t5_backbone, **_OPEN_AXES),
    Case(models.dlrm, 4),
    Case(in_layer),
    Case(in_layer_with_mask),
    Case(in_layer_without_config),
    Case(made_in_build),
    Case(in_collections, 8),
    Case(named_as_tensorflow_names),
    Case(given_to_layer),
    Case(three_deep),
    Case(called_twice),
    Case(shared_by_two_layers),
    Case(shared_by_two_layers_alone),
    Case(shared_with_the_table_last),
    Case(tied_dense),
    Case(time_distributed),
    Case(bidirectional, 2),
    Case(nested_models),
    Case(subclassed_without_arguments, 2),
    Case(functional_subclass),
    Case(functional_subclass_inside),
    Case(task),
    Case(makes_all),
    Case(sequential_subclass),
    Case(subclassed_inside),
    Case(taking_layers, refused="get_config", remedy=with_config),
    Case(methods_only),
    Case(own_call, refused="DoubledEmbedding", remedy=table_then_rest),
    Case(reversible),
    Case(reversible_untied, 2),
    Case(quantized, not_exported="8-bit"),
    Case(quantized_table),
    Case(with_lora),
    Case(string_lookup, not_exported="begins behind"),
    Case(text_vectorization),
    Case(pooled_tables, 4),
    Case(embed_reduce),
    Case(embed_reduce_in_layer),
    Case(distributed_embedding, open_length=False),
)
