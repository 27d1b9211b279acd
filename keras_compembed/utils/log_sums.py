"""Sums and checks of scores, some of which may be infinite."""

import functools

import tensorflow as tf

from keras_compembed.utils.custom_gradient import custom_gradient


# What TensorFlow derives passes over the scores three times more.
@custom_gradient
def log_sum_exp(*parts):
    """`log(sum(e^scores))` over the last axis, minus infinity if of nothing."""
    largest = functools.reduce(
        tf.maximum, [tf.reduce_max(part, axis=-1) for part in parts]
    )
    finite = tf.where(largest > float("-inf"), largest, 0.0)
    exponentials = [tf.exp(part - finite[..., None]) for part in parts]
    total = tf.add_n([tf.reduce_sum(part, axis=-1) for part in exponentials])
    # Not `total > 0`, which NaN is not.
    positive = tf.logical_not(total <= 0)
    total = tf.where(positive, total, 1.0)
    logarithm = tf.where(positive, tf.math.log(total) + finite, float("-inf"))

    def gradients(upstream):
        factor = (upstream / total)[..., None]
        found = [factor * part for part in exponentials]
        return found if len(found) > 1 else found[0]

    return logarithm, gradients


def log_add_exp(first, second):
    """`log(e^first + e^second)`; either, or both, may be minus infinity."""
    first = tf.broadcast_to(first, tf.shape(second))
    return log_sum_exp(tf.stack([first, second], axis=-1))


def without_nan(scores):
    """Scores with minus infinity for NaN, which `top_k` would put anywhere."""
    return tf.where(tf.math.is_nan(scores), float("-inf"), scores)
