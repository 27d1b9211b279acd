"""Counts of subcodes."""

import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.codes.code_counts import count_codes

GROUPS, LENGTH, NUM_CODEBOOKS, CODEBOOK_SIZE = 3, 5, 4, 6


def draw(seed=0):
    rng = np.random.default_rng(seed)
    subcodes = rng.integers(
        CODEBOOK_SIZE, size=(GROUPS * LENGTH, NUM_CODEBOOKS), dtype="int32"
    )
    return subcodes, rng.normal(size=(GROUPS, LENGTH))


def reference(subcodes, weights):
    counts = np.zeros((GROUPS, NUM_CODEBOOKS, CODEBOOK_SIZE))
    subcodes = subcodes.reshape(GROUPS, LENGTH, NUM_CODEBOOKS)
    for group, place, codebook in np.ndindex(subcodes.shape):
        subcode = subcodes[group, place, codebook]
        counts[group, codebook, subcode] += weights[group, place]
    return counts


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts(dtype, jit_compile):
    subcodes, weights = draw()
    count = tf.function(count_codes, jit_compile=jit_compile)
    counts = count(subcodes, tf.constant(weights, dtype), CODEBOOK_SIZE)
    assert counts.dtype == dtype
    expected = reference(subcodes, weights)
    np.testing.assert_allclose(counts, expected, rtol=1e-5, atol=1e-6)


def test_gradient_of_weights():
    subcodes, weights = draw()
    weights = tf.constant(weights)
    upstream = np.random.default_rng(1).normal(
        size=(GROUPS, NUM_CODEBOOKS, CODEBOOK_SIZE)
    )
    with tf.GradientTape() as tape:
        tape.watch(weights)
        counts = count_codes(subcodes, weights, CODEBOOK_SIZE)
        total = tf.reduce_sum(counts * upstream)
    expected = np.zeros((GROUPS, LENGTH))
    for group, place in np.ndindex(expected.shape):
        code = subcodes[group * LENGTH + place]
        expected[group, place] = upstream[
            group, np.arange(NUM_CODEBOOKS), code
        ].sum()
    np.testing.assert_allclose(tape.gradient(total, weights), expected)


@pytest.mark.parametrize(("groups", "length"), [(0, 5), (3, 0)])
def test_nothing_to_count(groups, length):
    subcodes = np.zeros((0, NUM_CODEBOOKS), "int32")
    counts = count_codes(subcodes, tf.zeros((groups, length)), CODEBOOK_SIZE)
    np.testing.assert_array_equal(
        counts, np.zeros((groups, NUM_CODEBOOKS, CODEBOOK_SIZE))
    )
