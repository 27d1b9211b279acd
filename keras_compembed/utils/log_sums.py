"""Sums and checks of scores, some of which may be infinite."""

import tensorflow as tf


def log_sum_exp(scores):
    """`log(sum(e^scores))` over the last axis, minus infinity if of nothing."""
    largest = tf.stop_gradient(tf.reduce_max(scores, axis=-1))
    finite = tf.where(largest > float("-inf"), largest, 0.0)
    total = tf.reduce_sum(tf.exp(scores - finite[..., None]), axis=-1)
    # Not `total > 0`, which NaN is not. Gradients of branches not taken must
    # be finite as well.
    positive = tf.logical_not(total <= 0)
    logarithm = tf.math.log(tf.where(positive, total, 1.0)) + finite
    return tf.where(positive, logarithm, float("-inf"))


def log_add_exp(first, second):
    """`log(e^first + e^second)`; either, or both, may be minus infinity."""
    first = tf.broadcast_to(first, tf.shape(second))
    return log_sum_exp(tf.stack([first, second], axis=-1))


def without_nan(scores):
    """Scores with minus infinity for NaN, which `top_k` would put anywhere."""
    return tf.where(tf.math.is_nan(scores), float("-inf"), scores)
