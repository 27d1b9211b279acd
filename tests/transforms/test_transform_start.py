import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.transforms.transform_start import TransformStart
from keras_compembed.transforms.transform_start import one_hot_rows

# Id 7 stands for two anchors, 3 for one.
ANCHOR_IDS = [-1, 7, 3, 7, -1, -1]


def test_objects_that_are_anchors_start_as_themselves():
    rows, columns = one_hot_rows(ANCHOR_IDS)
    assert rows.tolist() == [3, 7] and columns.tolist() == [2, 1]
    for initializer in (None, "ones"):
        table = TransformStart(ANCHOR_IDS, True, initializer).table((9, 6))
        np.testing.assert_array_equal(table.numpy()[[3, 7]], np.eye(6)[[2, 1]])


def test_the_table_is_its_values_in_their_columns():
    for non_negative in (True, False):
        start = TransformStart(ANCHOR_IDS, non_negative, seed=0)
        table = start.table((9, 6), "float32").numpy()
        values = start.values((9, 4), "float32").numpy()
        columns = start.columns((9, 4)).numpy()
        np.testing.assert_array_equal(
            np.take_along_axis(table, columns, axis=1), values
        )
        assert np.count_nonzero(table) == np.count_nonzero(values) == 7 * 4 + 2
        assert (table >= 0).all() == non_negative
        assert np.abs(np.delete(table, [3, 7], axis=0)).max() <= 0.1
    # More room holds as many numbers, in columns that differ.
    columns = start.columns((9, 6)).numpy()
    np.testing.assert_array_equal(
        np.sort(columns, axis=1), np.tile(np.arange(6), (9, 1))
    )
    assert np.count_nonzero(start.values((9, 6))) == 7 * 4 + 2


def test_an_initializer_of_ones_own_keeps_the_sign():
    table = TransformStart(ANCHOR_IDS, True, "random_normal").table((9, 6))
    assert 0 < np.count_nonzero(table) < 9 * 6
    assert (table.numpy() >= 0).all()


def test_seeds():
    start = TransformStart(ANCHOR_IDS)
    assert start.seed is None
    table = start.table((9, 6)).numpy()
    assert start.seed is not None
    np.testing.assert_array_equal(start.table((9, 6)), table)
    again = TransformStart(ANCHOR_IDS, seed=start.seed)
    np.testing.assert_array_equal(again.table((9, 6)), table)


@pytest.mark.parametrize("initializer", [None, "zeros"])
def test_in_a_graph(initializer):
    """Where Keras builds layers of a model without `keras.Input`."""
    start = TransformStart(np.array([3, -1, 0]), True, initializer, seed=0)
    expected = start.table((5, 3), "float32")
    table = tf.function(lambda: start.table((5, 3), "float32"))()
    np.testing.assert_array_equal(table, expected)
