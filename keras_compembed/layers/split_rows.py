"""Rows of ids as a dense tensor."""

import tensorflow as tf


class WholeRows:
    """Rows of a dense tensor `(rows, length)`."""

    def add_up(self, values):
        """Sums `(rows, 1)` of values `(rows, length)`."""
        return tf.reduce_sum(values, axis=1, keepdims=True)

    def spread(self, values):
        """Values `(rows, width)` of rows, as they are."""
        return values

    def join(self, sums):
        """Sums `(rows, width)` of rows, as they are."""
        return sums


class SplitRows:
    """Rows of a ragged tensor, long ones in several parts."""

    def __init__(self, ragged):
        starts = ragged.row_starts()
        lengths = ragged.row_lengths()
        number = ragged.nrows()
        self._total = tf.shape(ragged.flat_values, out_type=starts.dtype)[0]
        longest = tf.reduce_max(tf.pad(lengths, [[0, 1]], constant_values=1))
        mean = self._total // tf.maximum(number, 1) + 1
        length = tf.minimum(longest, 2 * mean)
        # Empty rows are a part too.
        parts = tf.maximum((lengths + length - 1) // length, 1)
        self._number = number
        self._rows = rows = tf.repeat(tf.range(number), parts)
        before = tf.gather(tf.cumsum(parts, exclusive=True), rows)
        inside = tf.range(tf.shape(rows, out_type=starts.dtype)[0]) - before
        inside = inside[:, None] * length + tf.range(length)
        self.exists = inside < tf.gather(lengths, rows)[:, None]
        places = tf.gather(starts, rows)[:, None] + inside
        self._places = tf.where(self.exists, places, self._total)

    def lay_out(self, flat_values, default):
        """`(parts, length)` of the flat values of such a ragged tensor."""
        default = tf.cast(default, flat_values.dtype)
        return tf.gather(
            tf.concat([flat_values, [default]], axis=0), self._places
        )

    def add_up(self, values):
        """Sums `(rows, 1)` of values `(parts, length)`."""
        return self.join(tf.reduce_sum(values, axis=1, keepdims=True))

    def spread(self, values):
        """Values `(parts, width)` of values `(rows, width)`."""
        return tf.gather(values, self._rows)

    def join(self, sums):
        """Sums `(rows, width)` of sums `(parts, width)`."""
        return tf.math.unsorted_segment_sum(sums, self._rows, self._number)
