"""Models that LiteRT cannot hold are refused by the names of their layers."""

import importlib
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import code_embedding
from export_models import ids_input

from keras_compembed.export.export_litert import export_litert

# Its name in the package is that of the function.
module = importlib.import_module(export_litert.__module__)
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


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: sequential(lookup(name="to_ids"), code_embedding()),
            r"table in the layer 'to_ids' \(IntegerLookup\)\. Look values up",
        ),
        (nested, "a look-up table in the layer 'to_ids'"),
        (
            lambda: sequential(Table(name="own"), code_embedding()),
            r"a look-up table in the layer 'own' \(Table\)",
        ),
        (
            lambda: sequential(
                keras.layers.Hashing(20, name="hashes"), code_embedding()
            ),
            r"strings in the layer 'hashes' \(Hashing\)\. Turn text and hash",
        ),
        (
            lambda: quantized("int8"),
            r"8-bit products in the layer 'scores' \(Dense\)\. Export the mod",
        ),
        (
            lambda: quantized("float8"),
            "8-bit floats in the layer 'scores'.*before `quantize`",
        ),
        (
            lambda: sequential(
                code_embedding(),
                keras.layers.Dense(3, dtype="float64", name="precise"),
            ),
            r"float64 in the layer 'precise' \(Dense\)\. Make the layer with",
        ),
        (
            lambda: sequential(
                keras.layers.Embedding(20, 3, dtype="float64", name="precise")
            ),
            "float64 in the layer 'precise'",
        ),
        (
            lambda: sequential(code_embedding(), NoiseInEachCall(name="noise")),
            r"random numbers in the layer 'noise' \(NoiseInEachCall\)\. Draw",
        ),
    ],
    ids=[
        "lookup",
        "nested",
        "table",
        "hashing",
        "int8",
        "float8",
        "float64",
        "float64 table",
        "random",
    ],
)
def test_refused_before_conversion(make, message, tmp_path, monkeypatch):
    def no_work(*args, **kwargs):
        raise AssertionError("work was done")

    monkeypatch.setattr(module, "convert", no_work)
    with pytest.raises(ValueError, match=message):
        export_litert(make(), tmp_path / "model.tflite", verbose=0)
    assert not os.listdir(tmp_path)


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
    ],
    ids=["int4", "dropout", "float64 input", "buckets"],
)
def test_what_only_looks_alike_is_exported(make, tmp_path):
    export = export_litert(make(), tmp_path / "model.tflite", verbose=0)
    assert export.max_error < 1e-5


@pytest.mark.parametrize(
    "dtype, message",
    [
        ("string", r"text that goes to 'lambda\w*' \(Lambda\)"),
        ("complex64", "be numbers, and real.*complex64"),
    ],
)
def test_inputs_that_are_no_real_numbers(dtype, message, tmp_path):
    inputs = keras.Input((3,), dtype=dtype)
    outputs = keras.layers.Lambda(lambda x: tf.ones(tf.shape(x)))(inputs)
    model = keras.Model(inputs, outputs)
    with pytest.raises(ValueError, match=message):
        export_litert(model, tmp_path / "model.tflite")


def test_what_the_converter_refuses_is_named(tmp_path, capfd):
    model = keras.Sequential(
        [
            ids_input(),
            keras.layers.CategoryEncoding(20, "count", name="counts"),
            keras.layers.Dense(2),
        ]
    )
    message = r"DenseBincount in the layer 'counts' \(CategoryEncoding\)\."
    with pytest.raises(ValueError, match=message):
        export_litert(model, tmp_path / "model.tflite", verbose=0)


def test_new_axes_need_sizes(tmp_path, capfd):
    model, path = sequential(NewAxes(name="axes")), tmp_path / "model.tflite"
    message = r"StridedSlice in the layer 'axes'.*`input_signature`.*expand_di"
    with pytest.raises(ValueError, match=message):
        export_litert(model, path, verbose=0)
    signature = tf.TensorSpec((None, 100), "int32")
    export_litert(model, path, input_signature=signature, verbose=0)


def test_failures_within_the_converter_are_value_errors(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("Tried to export an 'untracked' resource.")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    model = keras.Sequential([ids_input(), code_embedding()])
    with pytest.raises(ValueError, match="built-in op.*'untracked' resource"):
        export_litert(model, tmp_path / "model.tflite", verbose=0)
    monkeypatch.undo()

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(OSError, match="No space left"):
        export_litert(model, tmp_path / "model.tflite", verbose=0)
    assert not os.listdir(tmp_path)
    assert np.isfinite(model(np.zeros((1, 2), "int32"))).all()


def test_argmax(tmp_path):
    inputs = keras.Input((4,))
    outputs = keras.ops.argmax(inputs, axis=-1)
    with pytest.raises(ValueError, match="`tf.argmax`"):
        export_litert(
            keras.Model(inputs, outputs), tmp_path / "model.tflite", verbose=0
        )
    layer = keras.layers.Lambda(lambda x: tf.argmax(x, axis=-1))
    model = keras.Sequential([inputs, layer])
    export_litert(model, tmp_path / "model.tflite", verbose=0)
