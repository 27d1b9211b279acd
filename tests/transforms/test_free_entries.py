import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.anchors import Relations
from keras_compembed.transforms.free_entries import FreeEntries


@pytest.fixture
def dense():
    dense = np.random.default_rng(0).random((9, 5)) < 0.3
    dense[2] = False
    dense[4] = True
    return dense


@pytest.fixture
def free(dense):
    offsets = np.concatenate([[0], np.cumsum(dense.sum(axis=1))])
    return FreeEntries(offsets, np.nonzero(dense)[1], 5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_rows_and_entries(dense, free, jit_compile):
    ids = tf.constant([8, 2, 4, 0])
    of_rows = tf.function(free.of_rows, jit_compile=jit_compile)
    np.testing.assert_array_equal(of_rows(ids), dense[[8, 2, 4, 0]])
    columns = tf.constant([[4, 0], [1, 2], [0, 3], [2, 1]])
    of_entries = tf.function(free.of_entries, jit_compile=jit_compile)
    np.testing.assert_array_equal(
        of_entries(ids, columns),
        np.take_along_axis(dense[[8, 2, 4, 0]], columns.numpy(), axis=1),
    )


def test_restore(dense, free):
    values = np.random.default_rng(1).normal(size=(9, 5)).astype("float32")
    np.testing.assert_array_equal(
        free.restore(tf.zeros((9, 5)), tf.constant(values)),
        np.where(dense, values, 0),
    )
    assert len(free) == dense.sum()


def test_from_relations():
    relations = Relations([[0, 4], [3, 2], [4, 5]], 9)
    free = FreeEntries.from_relations(relations, np.array([4, -1, 2]))
    expected = np.zeros((9, 3), bool)
    expected[[0, 5], 0] = True
    expected[3, 2] = True
    np.testing.assert_array_equal(free.of_rows(tf.range(9)), expected)
    assert len(FreeEntries.from_relations(None, np.array([4, -1, 2]))) == 0


def test_none():
    free = FreeEntries([0], [], 5)
    assert len(free) == 0
    assert free.of_rows(tf.constant([1])) is None
    assert free.of_entries(tf.constant([1]), tf.constant([[1]])) is None
    rows = tf.ones((2, 5))
    assert free.restore(rows, rows) is rows
