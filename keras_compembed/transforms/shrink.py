"""The proximal step on rows of a transform."""

import tensorflow as tf


def shrink(rows, threshold, non_negative, free=None):
    """Algorithm 1, line 10, of Liang et al.

    Moves numbers towards 0 by `threshold`, those that are closer to exactly
    0, and with `non_negative` those below 0 too. Two steps one after the
    other are one with the sum of their thresholds.

    Args:
        rows: Float tensor.
        threshold: Tensor of numbers of at least 0 that broadcasts to `rows`.
        non_negative: Boolean.
        free: Optional boolean tensor like `rows`: what is not to be moved
            (1 - S of the paper).
    """
    threshold = tf.cast(threshold, rows.dtype)
    if free is not None:
        threshold = tf.where(free, tf.zeros_like(rows), threshold)
    # Infinite thresholds would make a product of 0 and infinity.
    shrunk = rows - tf.clip_by_value(rows, -threshold, threshold)
    return tf.maximum(shrunk, 0) if non_negative else shrunk
