"""How often each codeword is named by a group of codes."""

import numpy as np
import tensorflow as tf


def count_codes(subcodes, weights, codebook_size):
    """Weighted counts of subcodes."""
    num_codebooks = subcodes.shape[1]
    width = num_codebooks * codebook_size
    groups, length = tf.unstack(tf.shape(weights))
    # int64: there may be more counts than int32 numbers, and int32 sums have
    # no GPU kernel. Cast here: LiteRT takes no int64 shapes apart.
    groups = tf.cast(groups, tf.int64)
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    start = tf.repeat(tf.range(groups) * width, length)
    places = tf.cast(subcodes, tf.int64) + first + tf.expand_dims(start, 1)
    values = tf.repeat(tf.reshape(weights, (-1,)), num_codebooks)
    # Much faster of flat tensors.
    counts = tf.math.unsorted_segment_sum(
        values, tf.reshape(places, (-1,)), groups * width
    )
    return tf.reshape(counts, (-1, num_codebooks, codebook_size))
