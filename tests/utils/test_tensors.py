"""Helpers that work on tensors."""

import numpy as np
import tensorflow as tf

from keras_compembed.utils.tensor_ops import each_once
from keras_compembed.utils.tensor_ops import log_add_exp
from keras_compembed.utils.tensor_ops import log_sum_exp

NOTHING = float("-inf")


def test_vectors_of_different_ids_are_composed_once():
    table = tf.constant(np.random.default_rng(0).normal(size=(9, 4)))
    ids = tf.constant([7, 3, 7, 0, 3, 7])
    composed = []

    def compose(ids):
        composed.append(len(ids))
        return tf.gather(table, ids)

    found = each_once(compose, ids)
    np.testing.assert_array_equal(found, tf.gather(table, ids))
    assert composed == [3]


def test_log_sum_exp():
    scores = tf.constant(
        [
            [0.0, np.log(3), NOTHING],
            [NOTHING] * 3,
            [1e30, 1e30, 0.0],
            [-1e4, -1e4, NOTHING],
            [0.0, np.nan, 1.0],
        ]
    )
    with tf.GradientTape() as tape:
        tape.watch(scores)
        sums = log_sum_exp(scores)
    np.testing.assert_allclose(
        sums, [np.log(4), NOTHING, 1e30, np.log(2) - 1e4, np.nan], rtol=1e-6
    )
    gradients = tape.gradient(sums, scores).numpy()
    np.testing.assert_allclose(
        gradients[:4],
        [[0.25, 0.75, 0], [0, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]],
        rtol=1e-6,
    )
    assert log_sum_exp(tf.zeros((2, 0))).numpy().tolist() == [NOTHING] * 2
    added = log_add_exp(tf.constant([0.0, NOTHING]), tf.constant([0.0, 5.0]))
    np.testing.assert_allclose(added, [np.log(2), 5], rtol=1e-6)
