"""Ids of texts that count."""

import tensorflow as tf


def count_ids(counts):
    """How many ids count, float32 `(texts, 1)`, of booleans."""
    return tf.reduce_sum(tf.cast(counts, tf.float32), axis=1, keepdims=True)
