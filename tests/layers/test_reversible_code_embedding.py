"""Reversible layers beside `keras.layers.ReversibleEmbedding`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_checks import check_config

import keras_compembed as kc
from keras_compembed.codes.packing import pack_codes
from keras_compembed.rounding.rounded_table import pack_integers

V, D = 30, 8
IDS = np.array([[0, 29, 3], [3, 3, 0]], dtype="int32")
HIDDEN = np.random.default_rng(1).normal(size=(2, 3, D)).astype("float32")
# Both tables of a layer, of whole numbers: products have no rounding.
TABLES = np.random.default_rng(2).integers(-3, 4, size=(2, V, D)) * 1.0


def as_reverse(tie_weights, reverse_dtype=None, logit_soft_cap=None, **kwargs):
    """Arguments of layers for those of Keras's `ReversibleEmbedding`."""
    reverse = kc.Reverse(tie_weights, reverse_dtype, logit_soft_cap)
    return {"reverse": reverse, **kwargs}


def pair(tie_weights=True, **kwargs):
    """A layer of Keras, and one of codes with the same tables.

    Each codebook has the rows of some ids: the others add a zero.
    """
    kwargs["tie_weights"] = tie_weights
    theirs = keras.layers.ReversibleEmbedding(V, D, **kwargs)
    theirs.build()
    ours = kc.CodeEmbedding(V, D, 2, 16, **as_reverse(**kwargs))
    ours.build()
    parts = [ours] if tie_weights else [ours, ours.reverse_embedding]
    for table, part in zip(TABLES, parts, strict=False):
        part.codebooks.assign(exact_codebooks(table))
        part.packed_codes.assign(pack_codes(EXACT_CODES, 16))
    theirs.set_weights([TABLES[0], TABLES[1].T][: len(parts)])
    return theirs, ours


def rounded_pair(tie_weights=True, **kwargs):
    """The same of a layer of rounded rows."""
    kwargs["tie_weights"] = tie_weights
    theirs, _ = pair(**kwargs)
    ours = kc.QuantizedEmbedding(V, D, 4, **as_reverse(**kwargs))
    ours.build()
    parts = [ours] if tie_weights else [ours, ours.reverse_embedding]
    for table, part in zip(TABLES, parts, strict=False):
        part.packed_rows.assign(pack_integers(table, 4))
        part.scales.assign(np.full((V, 1), 127))
        part.scale_unit.assign(1 / 127)
    return theirs, ours


EXACT_CODES = np.zeros((V, 2), "uint8")
EXACT_CODES[np.arange(V), np.arange(V) // 15] = 1 + np.arange(V) % 15


def exact_codebooks(table):
    codebooks = np.zeros((2, 16, D))
    codebooks[:, 1:] = table.reshape(2, 15, D)
    return codebooks


@pytest.mark.parametrize("pair", [pair, rounded_pair])
@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"logit_soft_cap": 5.0, "mask_zero": True},
        {"dtype": "mixed_bfloat16", "reverse_dtype": "float32"},
        {"dtype": "float32", "reverse_dtype": "bfloat16"},
    ],
    ids=str,
)
def test_is_the_same_function_as_that_of_keras(pair, tie_weights, kwargs):
    theirs, ours = pair(tie_weights, **kwargs)
    hidden = tf.cast(HIDDEN, ours.compute_dtype)
    for inputs, reverse in ((IDS, False), (hidden, True)):
        expected = theirs(inputs, reverse=reverse)
        got = ours(inputs, reverse=reverse)
        assert got.shape == expected.shape and got.dtype == expected.dtype
        # Sums of 8 products of numbers up to 3 and some 2, rounded at most
        # twice to 8 bits where the dtype has no more.
        half = "bfloat16" in (ours.compute_dtype, ours.reverse.dtype)
        np.testing.assert_allclose(
            np.asarray(got, "float32"),
            np.asarray(expected, "float32"),
            atol=24 * 2.0**-7 if half else 1e-5,
        )
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        spec = keras.KerasTensor((None, *inputs.shape[1:]), dtype)
        symbolic = ours(spec, reverse=reverse)
        assert symbolic.shape == (None, *expected.shape[1:])
        assert symbolic.dtype == got.dtype
    check_config(ours)
    assert ours.mask_zero == theirs.mask_zero
    assert ours.reverse == kc.Reverse(
        theirs.tie_weights, theirs.reverse_dtype, theirs.logit_soft_cap
    )


class InLayer(keras.layers.Layer):
    """Calls a layer within a layer."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, inputs, reverse=False):
        return self.inner(inputs, reverse=reverse)


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("outer", ["float32", "mixed_float16"])
def test_dtype_of_logits_within_a_layer(outer, tie_weights):
    """Tables read in layers of mixed precision are not always cast."""
    theirs, ours = pair(tie_weights, dtype="mixed_float16")
    hidden = tf.cast(HIDDEN, "float16")
    expected = InLayer(theirs, dtype=outer)(hidden, reverse=True)
    layer = InLayer(ours, dtype=outer)
    got = layer(hidden, reverse=True)
    assert got.dtype == expected.dtype
    assert layer(keras.KerasTensor(hidden.shape), reverse=True).dtype == (
        expected.dtype
    )
    # Numbers up to 100 in half precision, or in full.
    atol = 0.1 if got.dtype == "float16" else 1e-3
    np.testing.assert_allclose(got, expected, atol=atol)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_from_table(tie_weights):
    kwargs = {} if tie_weights else {"reverse_table": TABLES[1]}
    reverse = kc.Reverse(tie_weights, logit_soft_cap=9.0)
    layer = kc.CodeEmbedding.from_table(
        TABLES[0], 8, 8, seed=0, verbose=0, reverse=reverse, **kwargs
    )
    assert layer.reverse == reverse
    parts = [layer] if tie_weights else [layer, layer.reverse_embedding]
    for table, part in zip(TABLES, parts, strict=False):
        error = np.square(part.embeddings - table).sum()
        assert error < 0.2 * np.square(table).sum()
    codebooks = [part.codebooks.numpy() for part in parts]
    layer.reset_codebooks()
    for part, old in zip(parts, codebooks, strict=True):
        assert not np.isclose(part.codebooks, old).all()


@pytest.mark.parametrize(
    "arguments",
    [
        {"reverse": kc.Reverse(tie_weights=False)},
        {"reverse": kc.Reverse(), "reverse_table": TABLES[1]},
        {"reverse_table": TABLES[1].T},
    ],
)
def test_tables_that_do_not_go_together(arguments):
    learner = kc.learners.AdditiveQuantizer(4, 8, verbose=0)
    with refused("reverse_table"):
        kc.CodeEmbedding.from_table(
            TABLES[0], 4, 8, learner=learner, **arguments
        )
    assert learner.codebooks is None
    with refused("logit_soft_cap", 0):
        kc.Reverse(logit_soft_cap=0)
