"""Look-ups in sets of ids, without a comparison of each with each."""

import tensorflow as tf


def is_in(sets, ids, rows=None):
    """Whether ids are in sets.

    By halves of sorted sets, unrolled: XLA compares with all of a set in
    `tf.searchsorted`.

    Args:
        sets: int32 tensor `(number, size)`, of a known size.
        ids: int32 tensor `(rows, ids)`, or `(1, ids)` for the same in all
            rows. Negative ids are in no set.
        rows: Optional int32 tensor `(rows,)`, the set of each row of `ids`.
            Defaults to `None`: that of the same number, or the only one.

    Returns:
        Boolean tensor `(rows, ids)`.
    """
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
