"""A table held as codes, without a layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.codes.coded_rows import CodedRows
from keras_compembed.codes.packing import pack_codes
from keras_compembed.compositions.registry import get_composition

ROWS, WIDTH, M, K = 9, 7, 3, 5


@pytest.mark.parametrize("name", ["sum", "concat", "lstm"])
def test_reads_and_writes(name):
    rng = np.random.default_rng(0)
    composition = get_composition(name, M, K, WIDTH)
    codes = rng.integers(K, size=(ROWS, M))
    table = CodedRows(
        keras.Variable(pack_codes(codes, K), dtype="uint8", trainable=False),
        keras.Variable(
            rng.normal(size=composition.codebooks_shape), dtype="float32"
        ),
        composition,
    )
    assert table.num_rows == ROWS
    np.testing.assert_array_equal(table.codes, codes)
    ids = np.array([4, 0, 4])
    np.testing.assert_array_equal(table.subcodes(ids), codes[ids])
    vectors = table.compose(table.subcodes(ids))
    np.testing.assert_allclose(vectors, table.decode(codes)[ids], atol=1e-6)
    picks = tf.one_hot(codes[ids], K, dtype="float64")
    np.testing.assert_allclose(table.compose_picks(picks), vectors, atol=1e-5)

    table.assign(codes[::-1])
    np.testing.assert_array_equal(table.codes, codes[::-1])
    np.testing.assert_array_equal(table.subcodes(ids), codes[::-1][ids])
