"""How often each codeword of a code is named by a group of ids."""

import numpy as np
import tensorflow as tf


def count_codes(subcodes, weights, codebook_size):
    """Weighted counts of subcodes.

    Args:
        subcodes: int32 tensor `(groups * length, num_codebooks)`.
        weights: Float tensor `(groups, length)`, how much each id counts.
        codebook_size: Integer.

    Returns:
        Tensor `(groups, num_codebooks, codebook_size)` of the dtype of
        `weights`, differentiable in `weights`.
    """
    num_codebooks = subcodes.shape[1]
    width = num_codebooks * codebook_size
    groups, length = tf.unstack(tf.shape(weights))
    first = np.arange(num_codebooks, dtype="int32") * codebook_size
    places = tf.reshape(subcodes, (groups, length, num_codebooks)) + first
    places += width * tf.range(groups)[:, None, None]
    values = tf.broadcast_to(weights[:, :, None], tf.shape(places))
    counts = tf.math.unsorted_segment_sum(values, places, groups * width)
    return tf.reshape(counts, (-1, num_codebooks, codebook_size))
