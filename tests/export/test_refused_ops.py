"""What LiteRT cannot hold, and inputs that an app would not expect."""

import os
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import export
from export_models import ids_input
from export_models import random_ids
from export_models import write

from keras_compembed import export_litert
from keras_compembed.export import inspect_litert

VOCABULARY = list(range(10))
KERAS = tuple(map(int, keras.__version__.split(".")[:2]))


def lookup(**kwargs):
    return keras.layers.IntegerLookup(vocabulary=VOCABULARY, **kwargs)


class NoiseInEachCall(keras.layers.Layer):
    def call(self, inputs):
        return inputs + tf.random.normal(tf.shape(inputs))


def sequential(*layers):
    return keras.Sequential([ids_input(), *layers])


def quantized(mode):
    model = sequential(code_embedding(), keras.layers.Dense(3, name="scores"))
    # `model.quantize` warns of layers that cannot be.
    model.layers[-1].quantize(mode)
    return model


REFUSED = {
    "lookup": (
        lambda: sequential(lookup(name="to_ids"), code_embedding()),
        r"table in the layer 'to_ids' \(IntegerLookup\)",
    ),
    "int8": (lambda: quantized("int8"), "8-bit products in the layer 'scores'"),
    "float64": (
        lambda: sequential(
            code_embedding(),
            keras.layers.Dense(3, dtype="float64", name="precise"),
        ),
        "float64 in the layer 'precise'",
    ),
    "random": (
        lambda: sequential(code_embedding(), NoiseInEachCall(name="noise")),
        "random numbers in the layer 'noise'",
    ),
    # What only the converter finds.
    "error function": (
        lambda: sequential(
            code_embedding(),
            keras.layers.Activation(keras.ops.erf, name="errors"),
            keras.layers.Dense(2),
        ),
        "Erf in the layers? 'errors'",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_ops_and_their_layers_are_named(kind, path):
    make, message = REFUSED[kind]
    model = make()
    with pytest.raises(ValueError, match=message):
        write(model, path)
    assert not os.listdir(path.parent)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda: quantized("int4"),
            marks=pytest.mark.skipif(
                KERAS < (3, 13), reason="Keras made inputs 8-bit for int4"
            ),
        ),
        lambda: keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Discretization([0.0, 1.0]),
                code_embedding(),
            ]
        ),
    ],
    ids=["int4", "buckets"],
)
def test_what_only_looks_alike_is_exported(make, path):
    assert write(make(), path).max_error < 1e-5


def test_inputs_that_are_no_real_numbers(path):
    inputs = keras.Input((3,), dtype="string")
    layer = keras.layers.Lambda(lambda x: tf.ones(tf.shape(x)), name="ones")
    with pytest.raises(ValueError, match="text.*'ones"):
        export_litert(keras.Model(inputs, layer(inputs)), path, quantize=None)


def test_failures_within_the_converter_are_value_errors(path, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("Tried to export an 'untracked' resource.")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(ValueError, match="'untracked' resource"):
        write(sequential(code_embedding()), path)
    assert not os.listdir(path.parent)


def warning_of(model, path, **kwargs):
    """The warning that an export gives; others are TensorFlow's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_litert(
            model, path, quantize=None, verbose=0, overwrite=True, **kwargs
        )
    (warning,) = (w for w in caught if w.category is UserWarning)
    # It points at the caller.
    assert warning.filename == __file__
    return str(warning.message)


def remedy_in(message):
    text = message.partition("`input_signature=")[2].removesuffix("`.")
    return eval(text, {"tf": tf})


def test_models_built_without_an_input(path):
    model = keras.Sequential(
        [code_embedding(), keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", run_eagerly=True)
    ids = random_ids(8, 5)
    model.fit(ids, np.zeros((8, 1)), batch_size=4, verbose=0)
    message = warning_of(model, path)
    assert "takes ids as floats: 'inputs'" in message
    assert "has a fixed batch size: 'inputs'" in message
    (tensor,) = inspect_litert(path).inputs
    assert (tensor.dtype, tensor.shape) == ("float32", (4, 5))

    signature = remedy_in(message)
    assert signature == tf.TensorSpec((None, 5), "int32")
    export(model, path, ids, input_signature=signature)
    (tensor,) = inspect_litert(path).inputs
    assert (tensor.dtype, tensor.shape) == ("int32", (None, 5))


def test_remedy_keeps_structure_and_names(path):
    words = keras.Input((30,), batch_size=2, name="words")
    places = keras.Input((30,), batch_size=2, dtype="int64", name="places")
    features = keras.Input((2,), batch_size=2, name="features")
    # A mask compares ids, and changes none.
    vectors = code_embedding(width=4, mask_zero=True)(words)
    vectors += keras.layers.Embedding(ROWS, 4)(places)
    model = keras.Model(
        [{"words": words, "places": places}, features],
        keras.layers.Concatenate()([keras.layers.LSTM(3)(vectors), features]),
    )
    ids = random_ids(1, 30)
    sample = [{"words": ids, "places": ids}, np.zeros((1, 2))]
    # Random inputs of floats beside ids are no ids.
    with pytest.raises(ValueError, match="input_signature"):
        write(model, path)
    signature = model.input
    signature = keras.tree.map_structure(
        lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype, x.name),
        signature,
    )
    message = warning_of(
        model, path, input_signature=signature, sample_inputs=sample
    )
    assert "ids as floats: 'words'. " in message
    remedy = remedy_in(message)
    assert remedy[0]["words"] == tf.TensorSpec((None, 30), "int32", "words")
    assert remedy[1] == tf.TensorSpec((None, 2), "float32", "features")
    write(model, path, input_signature=remedy)
    names = {each.name for each in inspect_litert(path).inputs}
    assert names == {"words", "places", "features"}


def test_ids_that_floats_do_not_tell_apart(path):
    """Keras rounds ids to the dtype of its input, here and in the file."""
    dtype, exact = "float16", 2**11
    signature = tf.TensorSpec((None, 1), "int32")
    for rows in (exact, exact + 2):
        model = keras.Sequential(
            [keras.Input((1,), dtype=dtype), keras.layers.Embedding(rows, 1)]
        )
        if rows == exact:
            write(model, path, input_signature=signature)
            continue
        with pytest.raises(ValueError, match=f"2,050 rows.*{dtype}"):
            write(model, path)
    # The remedy.
    again = keras.Sequential([ids_input(1), keras.layers.Embedding(rows, 1)])
    again.set_weights(model.get_weights())
    export(again, path, np.arange(exact, rows)[:, None], bound=0)
