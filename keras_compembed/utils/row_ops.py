"""Rows that are read repeatedly, added up, or chosen by scores."""

import tensorflow as tf

from keras_compembed.utils.chunks import in_parts
from keras_compembed.utils.chunks import in_xla

# Vectors at a time, rows for each, and numbers in the largest tensor held.
_VECTORS = 1024
_ROWS = 4096, 1 << 18
_NUMBERS = 1 << 22


def each_once(compose, ids):
    """Vectors of ids, each composed once however often its id is there."""
    if in_xla():
        return compose(ids)
    different, places = tf.unique(ids)
    return repeat_rows(compose(different), places)


def repeat_rows(rows, places):
    """As `tf.gather`, with gradients that half precision holds."""
    if rows.dtype not in (tf.float16, tf.bfloat16):
        return tf.gather(rows, places)
    # Gradients are added up where the shape is taken back.
    exact = tf.reshape(tf.cast(rows, "float32"), tf.shape(rows))
    return tf.cast(tf.gather(exact, places), rows.dtype)


def weighted_sums(rows, weights):
    """Adds up the rows of each group."""
    width = rows.shape[-1]
    shape = tf.concat([tf.shape(weights), [width]], axis=0)
    rows = tf.reshape(tf.cast(rows, weights.dtype), shape)
    # LiteRT has no `weights[:, :, None]` of two unknown axes.
    return tf.reduce_sum(rows * tf.expand_dims(weights, 2), axis=1)


def top_rows(vectors, k, num_rows, make_score):
    """The `k` best rows for each vector, exactly."""

    def compute(part):
        return _top_rows(part, k, num_rows, make_score(part))

    count = tf.shape(vectors)[0]
    results = [
        tf.fill([count, k], tf.constant(-float("inf"), vectors.dtype)),
        tf.zeros([count, k], tf.int32),
    ]
    return tuple(in_parts(compute, [vectors], results, _VECTORS))


def _top_rows(vectors, k, num_rows, score):
    count = vectors.shape[0]
    if count is None:
        count = tf.shape(vectors)[0]
        most = tf.clip_by_value(_NUMBERS // tf.maximum(count, 1), *_ROWS)
        size = tf.minimum(tf.maximum(most, k), num_rows)
    else:
        most = min(max(_NUMBERS // max(count, 1), _ROWS[0]), _ROWS[1])
        size = min(max(most, k), num_rows)
    # Of a size that XLA knows, but only outside the loop.
    offsets = tf.range(size)
    lowest = tf.constant(-float("inf"), vectors.dtype)

    def add(start, best, ids):
        exists = start + offsets < num_rows
        part = tf.minimum(start + offsets, num_rows - 1)
        scores = tf.where(exists, score(part), lowest)
        # Lower ids stand first, and win among equal ones.
        every = tf.broadcast_to(part, tf.shape(scores))
        best, places = tf.math.top_k(tf.concat([best, scores], 1), k)
        ids = tf.gather(tf.concat([ids, every], 1), places, batch_dims=1)
        return start + size, best, ids

    # Not from the lowest scores: rows may score as low, or NaN.
    best, ids = tf.math.top_k(score(offsets), k)
    _, best, ids = tf.while_loop(
        lambda start, *_: start < num_rows,
        add,
        (size, best, ids),
        parallel_iterations=1,
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([vectors.shape[0], k]),
            tf.TensorShape([vectors.shape[0], k]),
        ),
    )
    return best, ids
