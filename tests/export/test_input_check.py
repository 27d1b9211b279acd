"""What is said of inputs that an app could not use as it would expect."""

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

import keras_compembed as kc
from keras_compembed.export import export_litert
from keras_compembed.export import inspect_litert

L = keras.layers


def warning_of(model, path, **kwargs):
    """The warning that an export gives; others are TensorFlow's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_litert(model, path, verbose=0, overwrite=True, **kwargs)
    (warning,) = (w for w in caught if w.category is UserWarning)
    # It points at the caller.
    assert warning.filename == __file__
    return str(warning.message)


def remedy_in(message):
    text = message.partition("`input_signature=")[2].removesuffix("`.")
    return eval(text, {"tf": tf})


@pytest.mark.parametrize(
    "make",
    [
        lambda: L.Embedding(ROWS, 6),
        code_embedding,
        lambda: kc.ANTEmbedding(ROWS, 6, num_anchors=5),
    ],
    ids=["table", "codes", "anchors"],
)
def test_models_built_without_an_input(path, make):
    model = keras.Sequential([make(), L.Flatten(), L.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    ids = random_ids(8, 5)
    model.fit(ids, np.zeros((8, 1)), batch_size=4, verbose=0)
    message = warning_of(model, path)
    assert "takes ids as floats: 'inputs'" in message
    assert "takes batches of one size only: 'inputs'" in message
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
    vectors += L.Embedding(ROWS, 4)(places)
    model = keras.Model(
        [{"words": words, "places": places}, features],
        L.Concatenate()([L.LSTM(3)(vectors), features]),
    )
    ids = random_ids(1, 30)
    sample = [{"words": ids, "places": ids}, np.zeros((1, 2))]
    # Random inputs of floats beside ids are no ids.
    with pytest.raises(ValueError, match="input_signature"):
        export_litert(model, path, verbose=0)
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
    export_litert(
        model, path, input_signature=remedy, verbose=0, overwrite=True
    )
    names = {each.name for each in inspect_litert(path).inputs}
    assert names == {"words", "places", "features"}


def test_many_inputs_are_not_listed(path):
    inputs = [keras.Input((1,), name=f"column_{i}") for i in range(6)]
    model = keras.Model(inputs, [L.Embedding(9, 2)(x) for x in inputs])
    message = warning_of(model, path)
    assert "with tf.TensorSpec((None, 1), 'int32', name='column_0')" in message
    assert message.count("TensorSpec") == 1


@pytest.mark.parametrize(
    "make",
    [
        # A column of ids in a table of numbers.
        lambda x: L.Concatenate()([L.Embedding(ROWS, 2)(x[:, 0]), x[:, 1:]]),
        lambda x: L.Dense(3)(x),
        lambda x: L.Embedding(ROWS, 2)(L.Lambda(tf.argmax)(x[0])),
    ],
)
def test_floats_that_are_numbers(path, make):
    x = keras.Input((4,))
    export_litert(keras.Model(x, make(x)), path, verbose=0)


def test_fixed_batches_that_are_meant(path):
    model = keras.Sequential(
        [keras.Input((3,), batch_size=2), L.Dense(1, name="dense")]
    )
    assert "one size only" in warning_of(model, path)
    for batch_size in (1, 2):
        signature = tf.TensorSpec((batch_size, 3), "float32")
        export_litert(
            model, path, input_signature=signature, verbose=0, overwrite=True
        )
    model = keras.Sequential(
        [keras.Input((3, 2), batch_size=2), L.LSTM(2, stateful=True)]
    )
    export_litert(model, path, verbose=0, overwrite=True)


def test_ids_that_floats_do_not_tell_apart(path):
    """Keras rounds ids to the dtype of its input, here and in the file."""
    dtype, exact = "float16", 2**11
    for rows in (exact, exact + 2):
        model = keras.Sequential(
            [keras.Input((1,), dtype=dtype), L.Embedding(rows, 1)]
        )
        signature = tf.TensorSpec((None, 1), "int32")
        if rows == exact:
            export_litert(model, path, input_signature=signature, verbose=0)
            continue
        for given in (None, signature):
            with pytest.raises(ValueError, match=f"{dtype}.*2,050 rows"):
                export_litert(
                    model, path, input_signature=given, overwrite=True
                )
    # The remedy.
    again = keras.Sequential([ids_input(1), L.Embedding(rows, 1)])
    again.set_weights(model.get_weights())
    export(again, path, np.arange(exact, rows)[:, None], bound=0)
