import numpy as np
import tensorflow as tf

from keras_compembed.utils.log_sums import log_add_exp
from keras_compembed.utils.log_sums import log_sum_exp

NOTHING = float("-inf")


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


def test_log_sum_exp_of_no_columns():
    assert log_sum_exp(tf.zeros((2, 0))).numpy().tolist() == [NOTHING] * 2


def test_log_add_exp():
    first = tf.constant([0.0, NOTHING, 2.0, NOTHING])
    second = tf.constant([np.log(2), 5.0, NOTHING, NOTHING], "float32")
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        sums = log_add_exp(first, second)
    np.testing.assert_allclose(sums, [np.log(3), 5, 2, NOTHING], rtol=1e-6)
    for gradient, right in zip(
        tape.gradient(sums, [first, second]),
        ([1 / 3, 0, 1, 0], [2 / 3, 1, 0, 0]),
        strict=True,
    ):
        np.testing.assert_allclose(gradient, right, rtol=1e-6)
    wide = log_add_exp(tf.constant([[0.0], [1.0]]), tf.zeros((2, 3)))
    assert wide.shape == (2, 3)


def test_log_sum_exp_of_parts():
    """As if concatenated; a part may have no columns."""
    rng = np.random.default_rng(0)
    parts = [tf.constant(rng.normal(size=(4, n)), "float32") for n in (3, 0, 1)]
    whole = tf.concat(parts, axis=1)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([*parts, whole])
        sums, right = log_sum_exp(*parts), tf.reduce_logsumexp(whole, axis=1)
    np.testing.assert_allclose(sums, right, rtol=1e-6)
    np.testing.assert_allclose(
        tf.concat(tape.gradient(sums, parts), axis=1),
        tape.gradient(right, whole),
        rtol=1e-5,
    )
