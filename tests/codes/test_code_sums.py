"""Counts of subcodes, and sums of what the numbers of rows stand for."""

import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.codes.packing import FieldColumns
from keras_compembed.codes.packing import count_codes

GROUPS, LENGTH, NUM_CODEBOOKS, CODEBOOK_SIZE = 3, 5, 4, 6
RNG = np.random.default_rng(0)
SUBCODES = RNG.integers(
    CODEBOOK_SIZE, size=(GROUPS * LENGTH, NUM_CODEBOOKS), dtype="int32"
)
WEIGHTS = RNG.normal(size=(GROUPS, LENGTH))
UPSTREAM = RNG.normal(size=(GROUPS, NUM_CODEBOOKS, CODEBOOK_SIZE))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_and_gradients_of_weights(dtype):
    expected = np.zeros(UPSTREAM.shape)
    of_weights = np.zeros(WEIGHTS.shape)
    for group, place in np.ndindex(WEIGHTS.shape):
        for codebook, subcode in enumerate(SUBCODES[group * LENGTH + place]):
            expected[group, codebook, subcode] += WEIGHTS[group, place]
            of_weights[group, place] += UPSTREAM[group, codebook, subcode]
    weights = tf.constant(WEIGHTS, dtype)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        counts = count_codes(SUBCODES, weights, CODEBOOK_SIZE)
    assert counts.dtype == dtype
    np.testing.assert_allclose(counts, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tape.gradient(counts, weights, tf.constant(UPSTREAM, dtype)),
        of_weights,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "rows, fields, bits, size",
    [
        (1, 1, 1, 2),
        (300, 7, 3, 5),
        (70_000, 5, 4, 16),
        (70_000, 4, 5, 32),
        (40, 9, 8, 256),
        (300, 3, 12, 3000),
        (20, 2, 16, 65_536),
    ],
)
def test_sums_of_field_columns(rows, fields, bits, size):
    rng = np.random.default_rng(0)
    numbers = rng.integers(size, size=(rows, fields)).astype("uint16")
    numbers[0] = size - 1
    tables = rng.normal(size=(fields, size)).astype("float32")
    found = FieldColumns(numbers, bits).add_up(tables)
    wanted = tables[np.arange(fields), numbers].sum(axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert found.dtype == "float32"
