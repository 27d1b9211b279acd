import numpy as np
import tensorflow as tf

from keras_compembed.transforms.proximal_step import shrink


def soft_threshold(rows, threshold, non_negative):
    rows = np.sign(rows) * np.maximum(np.abs(rows) - threshold, 0)
    return np.maximum(rows, 0) if non_negative else rows


def test_shrink():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 4)).astype("float32")
    threshold = rng.random((5, 1)).astype("float32")
    for non_negative in (False, True):
        np.testing.assert_allclose(
            shrink(tf.constant(rows), threshold, non_negative),
            soft_threshold(rows, threshold, non_negative),
            atol=1e-7,
        )


def test_thresholds_add_up():
    rows = np.random.default_rng(1).normal(size=(50, 4)).astype("float32")
    for non_negative in (False, True):
        once = shrink(rows, 0.75, non_negative)
        twice = shrink(shrink(rows, 0.5, non_negative), 0.25, non_negative)
        np.testing.assert_allclose(once, twice, atol=1e-7)


def test_free_entries_and_infinite_thresholds():
    rows = tf.constant([[-3.0, 2.0, 0.0, -1.0]])
    free = tf.constant([[True, True, False, False]])
    np.testing.assert_array_equal(
        shrink(rows, np.inf, False, free), [[-3, 2, 0, 0]]
    )
    np.testing.assert_array_equal(shrink(rows, 1.5, True, free), [[0, 2, 0, 0]])


def test_nan_stays():
    assert np.isnan(shrink(tf.constant([np.nan]), 1.0, True)).all()
