"""Texts of ids, of shapes that may be open."""

import tensorflow as tf


def unflatten(rows, ids, width):
    """Rows of ids one after another, in the shape of the ids."""
    rows = tf.reshape(rows, tf.concat([tf.shape(ids), [width]], axis=0))
    rows.set_shape(ids.shape.concatenate(width))
    return rows


def join_weights(counts, weights):
    """Weights of ids, 0 for those that do not count; None if all are one."""
    if counts is None:
        return weights
    counts = tf.cast(counts, tf.float32)
    return counts if weights is None else counts * weights


def number_groups(ids):
    """The text of each id in a row, and the number of texts."""
    size = ids.shape[0]
    if size == 1:
        return tf.zeros_like(tf.reshape(ids, [-1])), 1
    if size is None:
        size = tf.shape(ids)[0]
    groups = tf.broadcast_to(tf.expand_dims(tf.range(size), 1), tf.shape(ids))
    return tf.reshape(groups, [-1]), size


def length_of(ids):
    """Ids of each text, as a float32 number or tensor."""
    return tf.cast(
        tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1], tf.float32
    )


def count_ids(counts):
    """How many ids count, float32 `(texts, 1)`, of booleans."""
    return tf.reduce_sum(tf.cast(counts, tf.float32), axis=1, keepdims=True)
