"""`ReversibleCodeEmbedding` beside `keras.layers.ReversibleEmbedding`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_config

import keras_compembed as kc

V, D = 30, 8
IDS = np.array([[0, 29, 3], [3, 3, 0]], dtype="int32")
HIDDEN = np.random.default_rng(1).normal(size=(2, 3, D)).astype("float32")
# Both tables of a layer, of whole numbers: products have no rounding.
TABLES = np.random.default_rng(2).integers(-3, 4, size=(2, V, D)) * 1.0


def pair(tie_weights=True, **kwargs):
    """A layer of Keras, and one of codes with the same tables.

    Each codebook has the rows of some ids: the others add a zero.
    """
    kwargs["tie_weights"] = tie_weights
    theirs = keras.layers.ReversibleEmbedding(V, D, **kwargs)
    theirs.build()
    ours = kc.ReversibleCodeEmbedding(V, D, 2, 16, **kwargs)
    ours.build()
    parts = [ours] if tie_weights else [ours, ours.reverse_embedding]
    for table, part in zip(TABLES, parts, strict=False):
        part.codebooks.assign(exact_codebooks(table))
        part._rows.assign(EXACT_CODES)
    theirs.set_weights([TABLES[0], TABLES[1].T][: len(parts)])
    return theirs, ours


EXACT_CODES = np.zeros((V, 2), "uint8")
EXACT_CODES[np.arange(V), np.arange(V) // 15] = 1 + np.arange(V) % 15


def exact_codebooks(table):
    codebooks = np.zeros((2, 16, D))
    codebooks[:, 1:] = table.reshape(2, 15, D)
    return codebooks


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"logit_soft_cap": 5.0, "mask_zero": True},
        {"dtype": "mixed_bfloat16", "reverse_dtype": "float32"},
        {"dtype": "float32", "reverse_dtype": "bfloat16"},
        {"dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_is_the_same_function_as_that_of_keras(tie_weights, kwargs):
    theirs, ours = pair(tie_weights, **kwargs)
    hidden = tf.cast(HIDDEN, ours.compute_dtype)
    for inputs, reverse in ((IDS, False), (hidden, True)):
        expected = theirs(inputs, reverse=reverse)
        got = ours(inputs, reverse=reverse)
        assert got.shape == expected.shape and got.dtype == expected.dtype
        # Sums of 8 products of numbers up to 3 and some 2, rounded at most
        # twice to 8 bits where the dtype has no more.
        half = "bfloat16" in (ours.compute_dtype, ours.reverse_dtype)
        np.testing.assert_allclose(
            np.asarray(got, "float32"),
            np.asarray(expected, "float32"),
            atol=24 * 2.0**-7 if half else 1e-5,
        )
        mask = getattr(got, "_keras_mask", None)
        if kwargs.get("mask_zero") and not reverse:
            np.testing.assert_array_equal(mask, IDS != 0)
        else:
            assert mask is None
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        spec = keras.KerasTensor((None, *inputs.shape[1:]), dtype)
        symbolic = ours(spec, reverse=reverse)
        assert symbolic.shape == (None, *expected.shape[1:])
        assert symbolic.dtype == got.dtype
    check_config(ours)
    for name in ("tie_weights", "logit_soft_cap", "reverse_dtype", "mask_zero"):
        assert getattr(ours, name) == getattr(theirs, name)
