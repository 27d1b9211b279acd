"""Where the numbers of sparse rows are, in a byte and a bit for each row."""

import numpy as np
import tensorflow as tf

# Rows counted from a common place.
BLOCK = 16


class RowPlaces:
    """Places of rows of at most 255 numbers each, one after another."""

    def __init__(self, lengths, starts):
        self._lengths = lengths
        self._starts = starts

    @staticmethod
    def pack(row_lengths):
        """The arrays that hold the lengths of rows."""
        blocks = count_blocks(len(row_lengths))
        lengths = np.zeros((blocks, BLOCK), "uint8")
        lengths.ravel()[: len(row_lengths)] = row_lengths
        totals = lengths.sum(axis=1, dtype="int64")
        return lengths, (np.cumsum(totals) - totals).astype("int32")

    def __call__(self, rows):
        """Where rows begin and end, int32 tensors."""
        lengths = tf.cast(tf.gather(self._lengths, rows // BLOCK), tf.int32)
        steps = np.arange(BLOCK, dtype="int32")
        place = tf.expand_dims(rows % BLOCK, 1)
        before = tf.cast(steps < place, tf.int32)
        own = tf.cast(tf.equal(steps, place), tf.int32)
        starts = tf.gather(self._starts, rows // BLOCK)
        starts += tf.reduce_sum(lengths * before, axis=1)
        return starts, starts + tf.reduce_sum(lengths * own, axis=1)


def count_blocks(num_rows):
    """Integer, blocks of so many rows."""
    return -(-num_rows // BLOCK)
