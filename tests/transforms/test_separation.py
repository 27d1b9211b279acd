import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.anchors import Relations
from keras_compembed.transforms.separation import Separation

ROWS = np.abs(np.random.default_rng(0).normal(size=(12, 6))).astype("float32")


def loss(separation, ids):
    return float(separation(tf.constant(ids), tf.constant(ROWS[ids])))


def test_pairs_that_are_not_related():
    pairs = [[u, v] for u in range(4) for v in range(u) if (u, v) != (3, 1)]
    separation = Separation(0.5, Relations(pairs, 12))
    # Of the four ids, only 3 and 1 are not related.
    expected = 0.5 * ROWS[3] @ ROWS[1]
    np.testing.assert_allclose(loss(separation, [0, 1, 2, 3]), expected, 1e-6)
    assert loss(separation, [0, 1, 2]) == 0
    nothing_related = Separation(0.5, Relations([], 12))
    np.testing.assert_allclose(loss(nothing_related, [3, 1]), expected, 1e-6)


def test_padding_is_in_no_pair():
    separation = Separation(1.0, mask_zero=True)
    np.testing.assert_allclose(
        loss(separation, [0, 8, 5]), ROWS[8] @ ROWS[5], rtol=1e-6
    )


def test_all_pairs_are_drawn():
    separation = Separation(2.0)
    losses = [loss(separation, np.arange(shift % 2, 10)) for shift in range(40)]
    products = ROWS[:10] @ ROWS[:10].T
    mean = products[~np.eye(10, dtype=bool)].mean()
    assert 0.5 * mean < np.mean(losses) / 2 < 1.5 * mean


def test_numbers_count_without_their_sign():
    separation = Separation(1.0)
    ids, rows = tf.constant([1, 2]), ROWS[[1, 2]]
    np.testing.assert_array_equal(separation(ids, rows), separation(ids, -rows))


@pytest.mark.parametrize("weight", [-1, np.nan, "a"])
def test_bad_weight(weight):
    with pytest.raises(ValueError, match="`negative_weight` must be a number"):
        Separation(weight)
