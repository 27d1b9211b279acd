"""Sorted rows, cut into chunks of even sizes."""

import tensorflow as tf


class EvenChunks:
    """Rows in the order of their codes, cut into chunks, several times over."""

    def __init__(self, codes, num_chunks, count=None):
        rows, rounds = codes.shape[0], codes.shape[1]
        if rows is None:
            rows = tf.shape(codes)[0]
        steps = tf.range(rows)
        # As one number, as XLA knows no other stable order.
        wide = tf.cast(tf.transpose(codes), "int64") * tf.cast(rows, "int64")
        order = tf.sort(wide + tf.cast(steps, "int64"), axis=1)
        order = tf.cast(order % tf.cast(rows, "int64"), "int32")
        first = rows * tf.range(rounds)[:, None]
        ranks = tf.scatter_nd(
            tf.reshape(order + first, (-1, 1)),
            tf.tile(steps, [rounds]),
            [rounds * rows],
        )
        ranks = tf.reshape(ranks, (rounds, rows))
        # Products of rows and chunks may be beyond int32.
        count = tf.cast(rows if count is None else count, "int64")
        count = tf.maximum(count, 1)
        starts = tf.range(num_chunks + 1, dtype="int64") * count // num_chunks
        starts = tf.cast(starts, "int32")
        size = (rows + num_chunks - 1) // num_chunks
        within = starts[:-1, None] + tf.range(size)
        members = tf.gather(order, tf.minimum(within, rows - 1), axis=1)
        self.members = tf.where(within < starts[1:, None], members, -1)
        chunks = (tf.cast(ranks, "int64") + 1) * num_chunks - 1
        chunks = tf.cast(chunks // count, "int32")
        self.chunks = tf.minimum(chunks, num_chunks - 1)
        places = ranks - tf.gather(starts, self.chunks)
        self.places = tf.minimum(places, size - 1)
