"""Small models that hold Embeddings in every way that Keras tracks.

`CASES` says what `compress_model` makes of each, and of some models of
`benchmarks.common.models`.
"""

import collections
import dataclasses
import functools

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


def shared_by_two_layers(is_read_too):
    """Of the second, Keras writes a file that it cannot read."""
    words, ids = table(), ids_input()
    readers = [Given(words, name="one"), Given(words, name="other")]
    if is_read_too:
        readers.append(words)
    hidden = sum(reader(ids) for reader in readers)
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    return keras.Model(ids, scores), SIZE.ids()


def tied_dense():
    words, ids = table("words"), ids_input()
    hidden = Dense(SIZE.width)(words(ids))
    return keras.Model(ids, TiedDense(words)(hidden)), SIZE.ids()


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


# Relatives of Embedding.


def reversible_untied():
    words = table(
        cls=keras.layers.ReversibleEmbedding,
        tie_weights=False,
        logit_soft_cap=2.0,
    )
    ids = ids_input()
    hidden = Dense(SIZE.width)(words(ids))
    return keras.Model(ids, words(hidden, reverse=True)), SIZE.ids()


# Words in front, and keras-rs.


def behind_words():
    """A model of one word each."""
    words = [f"word{number}" for number in range(SIZE.rows - 2)]
    text = keras.Input((1,), dtype="string")
    hidden = Host()(keras.layers.StringLookup(vocabulary=words)(text))
    scores = Dense(3)(GlobalAveragePooling1D()(hidden))
    places = np.random.default_rng(0).integers(len(words), size=(4, 1))
    return keras.Model(text, scores), np.array(words, object)[places]


def embed_reduce_in_layer():
    """A sum in a layer, of ids of which some are padding."""
    from keras_rs.layers import EmbedReduce

    layer = table(cls=EmbedReduce, mask_zero=True, combiner="sum")
    ids = ids_input()
    return keras.Model(ids, Dense(3)(Given(layer)(ids))), padded_ids()


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
    # Part of the error of `export_litert`.
    not_exported: str | None = None


def _of_benchmarks(function, codes=1, needs=None):
    make = functools.partial(function, SIZE)
    return Case(function.__name__, make, codes, needs)


def _pooled(name, make_layer, codes=1, **kwargs):
    return Case(name, lambda: pooled(make_layer()), codes, **kwargs)


def _called(name, make_model, codes=1, **kwargs):
    return Case(name, lambda: called(make_model(), SIZE.ids()), codes, **kwargs)


CASES = (
    _of_benchmarks(models.two_tower_shared),
    _of_benchmarks(models.seq2seq, 2),
    _of_benchmarks(models.subclassed),
    _of_benchmarks(models.tied_language_model),
    _of_benchmarks(models.llama_causal_lm, 2, "keras_hub"),
    _of_benchmarks(models.t5_backbone, 1, "keras_hub"),
    _of_benchmarks(models.dlrm, 4, "keras_rs"),
    Case("in_layer_with_mask", lambda: pooled(Host(True), padded_ids())),
    _pooled("made_in_build", LateHost),
    _pooled("in_collections", Collections, 8),
    _pooled("three_deep", Outer),
    Case("shared_by_two_layers_alone", lambda: shared_by_two_layers(False)),
    Case("shared_with_the_table_last", lambda: shared_by_two_layers(True)),
    Case("tied_dense", tied_dense),
    Case("bidirectional", bidirectional, 2),
    Case("nested_models", nested_models),
    _called("functional_subclass", Backbone),
    _called("task", lambda: Task(Backbone(5))),
    _called("makes_all", MakesAll, 2),
    _called("sequential_subclass", lambda: Stack(3)),
    Case("reversible_untied", reversible_untied, 2),
    Case("string_lookup", behind_words, not_exported="after the tokenizer"),
    Case("embed_reduce_in_layer", embed_reduce_in_layer, needs="keras_rs"),
)


def make(name):
    """The model of a case, and inputs."""
    (case,) = (case for case in CASES if case.name == name)
    return case.make()
