"""Weighted sums of rows, group by group."""

import tensorflow as tf


def weighted_sums(rows, weights):
    """Adds up the rows of each group."""
    width = rows.shape[-1]
    shape = tf.concat([tf.shape(weights), [width]], axis=0)
    rows = tf.reshape(tf.cast(rows, weights.dtype), shape)
    # LiteRT has no `weights[:, :, None]` of two unknown axes.
    return tf.reduce_sum(rows * tf.expand_dims(weights, 2), axis=1)
