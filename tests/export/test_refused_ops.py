"""Models that LiteRT cannot hold are refused by the names of their layers."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import code_embedding
from export_models import ids_input

from keras_compembed.export import export_litert

VOCABULARY = list(range(10))
KERAS = tuple(map(int, keras.__version__.split(".")[:2]))


def lookup(**kwargs):
    return keras.layers.IntegerLookup(vocabulary=VOCABULARY, **kwargs)


def nested():
    inner = keras.Sequential(
        [ids_input(), lookup(name="to_ids"), code_embedding()], name="inner"
    )
    ids = ids_input()
    return keras.Model(ids, keras.layers.Dense(2)(inner(ids)))


class Table(keras.layers.Layer):
    """A table of TensorFlow's own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        keys = tf.range(2, dtype="int64")
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, keys), 0
        )

    def call(self, inputs):
        return self.table.lookup(tf.cast(inputs, "int64"))


class NewAxes(keras.layers.Layer):
    def call(self, inputs):
        return inputs[:, None, :, None]


class NoiseInEachCall(keras.layers.Layer):
    def call(self, inputs):
        return inputs + tf.random.normal(tf.shape(inputs))


def quantized(mode):
    model = keras.Sequential(
        [
            ids_input(4),
            code_embedding(),
            keras.layers.Flatten(),
            keras.layers.Dense(3, name="scores"),
        ]
    )
    # `model.quantize` warns of layers that cannot be.
    model.layers[-1].quantize(mode)
    return model


def sequential(*layers):
    return keras.Sequential([ids_input(), *layers])


REFUSED = {
    "lookup": (
        lambda: sequential(lookup(name="to_ids"), code_embedding()),
        r"table in the layer 'to_ids' \(IntegerLookup\)",
    ),
    "nested": (nested, "table in the layer 'to_ids'"),
    "table": (
        lambda: sequential(Table(name="own"), code_embedding()),
        r"table in the layer 'own' \(Table\)",
    ),
    "hashing": (
        lambda: sequential(
            keras.layers.Hashing(20, name="hashes"), code_embedding()
        ),
        "strings in the layer 'hashes'",
    ),
    "int8": (
        lambda: quantized("int8"),
        "8-bit products in the layer 'scores'",
    ),
    "float8": (
        lambda: quantized("float8"),
        "8-bit floats in the layer 'scores'",
    ),
    "float64": (
        lambda: sequential(
            code_embedding(),
            keras.layers.Dense(3, dtype="float64", name="precise"),
        ),
        "float64 in the layer 'precise'",
    ),
    "float64 table": (
        lambda: sequential(
            keras.layers.Embedding(20, 3, dtype="float64", name="precise")
        ),
        "float64 in the layer 'precise'",
    ),
    "random": (
        lambda: sequential(code_embedding(), NoiseInEachCall(name="noise")),
        "random numbers in the layer 'noise'",
    ),
    # What only the converter finds.
    "counts": (
        lambda: sequential(
            keras.layers.CategoryEncoding(20, "count", name="counts"),
            keras.layers.Dense(2),
        ),
        "DenseBincount in the layer 'counts'",
    ),
    "new axes": (
        lambda: sequential(NewAxes(name="axes")),
        "StridedSlice in the layer 'axes'.*`input_signature`",
    ),
    "several": (
        lambda: sequential(
            code_embedding(),
            keras.layers.Lambda(
                lambda x: tf.math.betainc(x * 0 + 1.0, 1.0, 0.5)
            ),
            keras.layers.Lambda(lambda x: tf.math.igamma(x, 1.0)),
        ),
        "Betainc.*Igamma",
    ),
    "argmax": (
        lambda: sequential(
            code_embedding(), keras.layers.Lambda(keras.ops.argmax)
        ),
        "tf.argmax",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_ops_and_their_layers_are_named(kind, path, capfd):
    make, message = REFUSED[kind]
    model = make()
    before = [set(vars(layer)) for layer in model.layers]
    with pytest.raises(ValueError, match=message):
        export_litert(model, path, verbose=0)
    assert not os.listdir(path.parent)
    assert before == [set(vars(layer)) for layer in model.layers]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda: quantized("int4"),
            marks=pytest.mark.skipif(
                KERAS < (3, 13), reason="Keras made inputs 8-bit for int4"
            ),
        ),
        # Dropout draws in training alone.
        lambda: sequential(code_embedding(), keras.layers.Dropout(0.5)),
        lambda: keras.Sequential(
            [keras.Input((4,), dtype="float64"), keras.layers.Dense(3)]
        ),
        lambda: keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Discretization([0.0, 1.0]),
                code_embedding(),
            ]
        ),
        lambda: sequential(
            code_embedding(),
            keras.layers.Lambda(lambda x: tf.argmax(x, axis=-1)),
        ),
        # Of one axis whose size is not known.
        lambda: keras.Sequential([ids_input(100), NewAxes()]),
    ],
    ids=["int4", "dropout", "float64 input", "buckets", "argmax", "axes"],
)
def test_what_only_looks_alike_is_exported(make, path):
    assert export_litert(make(), path, verbose=0).max_error < 1e-5


@pytest.mark.parametrize("dtype", ["string", "complex64"])
def test_inputs_that_are_no_real_numbers(dtype, path):
    inputs = keras.Input((3,), dtype=dtype)
    layer = keras.layers.Lambda(lambda x: tf.ones(tf.shape(x)), name="ones")
    model = keras.Model(inputs, layer(inputs))
    message = {"string": "text.*'ones'", "complex64": "real.*complex64"}
    with pytest.raises(ValueError, match=message[dtype]):
        export_litert(model, path)


def test_failures_within_the_converter_are_value_errors(path, monkeypatch):
    error = AssertionError("Tried to export an 'untracked' resource.")

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(tf.saved_model, "save", fail)
    model = sequential(code_embedding())
    with pytest.raises(ValueError, match="'untracked' resource"):
        export_litert(model, path, verbose=0)
    error = OSError("No space left on device")
    with pytest.raises(OSError, match="No space left"):
        export_litert(model, path, verbose=0)
    assert not os.listdir(path.parent)
    assert np.isfinite(model(np.zeros((1, 2), "int32"))).all()
