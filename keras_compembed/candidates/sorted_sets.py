"""Look-ups in sets of ids, without a comparison of each with each."""

import tensorflow as tf


def is_in(sets, ids, rows=None):
    """Whether ids are in sets."""
    size = sets.shape[1]
    number = tf.shape(sets)[0]
    if not size:
        shape = tf.maximum(tf.shape(ids), tf.stack([number, 1]))
        return tf.zeros(shape, "bool")
    flat = tf.reshape(tf.sort(sets, axis=1), (-1,))
    start = size * (tf.range(number) if rows is None else rows)[:, None]
    # How many of the set are at most the id.
    below = tf.zeros_like(start + ids)
    for power in reversed(range(size.bit_length())):
        further = below + (1 << power)
        entry = tf.gather(flat, start + tf.minimum(further, size) - 1)
        below = tf.where((further <= size) & (entry <= ids), further, below)
    last = tf.gather(flat, start + tf.maximum(below - 1, 0))
    return (below > 0) & (last == ids) & (ids >= 0)
