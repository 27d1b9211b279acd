"""Sparse rows as tables of a LiteRT file, and how they are read."""

import numpy as np
import tensorflow as tf


class CompressedRows:
    """Rows of which a file holds the numbers that are not zero."""

    def __init__(
        self, offsets, row_lengths, columns, values, num_columns, step=None
    ):
        self.offsets = offsets
        self.columns, self._first_column = _narrow_columns(columns, num_columns)
        self.values = values
        self.num_bytes = self.columns.nbytes + values.nbytes
        self._step = step
        self.longest = max(1, int(row_lengths.max(initial=0)))
        self.mean_length = (len(values) - 1) / max(1, len(row_lengths))

    def numbers(self, ids):
        """The numbers of rows one after another: rows, columns, values."""
        starts, stops = self.offsets(ids)
        lengths = stops - starts
        ends = tf.cumsum(lengths)
        total = tf.reduce_sum(lengths, keepdims=True)
        # The row of a number: how many rows end before it.
        ones = ones_like_ids(ids)
        marks = tf.scatter_nd(tf.expand_dims(ends, 1), ones, total + 1)
        rows = tf.cumsum(marks)[:-1]
        places = tf.range(total[0]) + tf.gather(stops - ends, rows)
        return rows, *self._read(places)

    def windows(self, ids):
        """Columns and values `(longest, ids)` of rows, of known shape."""
        starts, stops = self.offsets(ids)
        # Row by row of the window, which broadcasts faster than id by id.
        steps = np.arange(self.longest, dtype="int32")[:, None]
        places = tf.expand_dims(starts, 0) + steps
        none = len(self.values) - 1
        return self._read(
            tf.where(places < tf.expand_dims(stops, 0), places, none)
        )

    def _read(self, places):
        columns = tf.cast(tf.gather(self.columns, places), tf.int32)
        if self._first_column:
            columns += self._first_column
        values = tf.gather(self.values, places)
        if self._step is not None:
            values = tf.cast(values, tf.float32) * self._step
        return columns, values


def dense_rows(rows, columns, values, num_rows, num_columns):
    """Numbers in a matrix `(num_rows, num_columns)`."""
    cells = rows * num_columns + columns
    dense = tf.scatter_nd(
        tf.reshape(cells, (-1, 1)),
        tf.reshape(values, (-1,)),
        tf.multiply(num_rows, num_columns),
    )
    return tf.reshape(dense, (-1, num_columns))


def ones_like_ids(ids):
    """int32 ones, which are not known to the converter."""
    return tf.cast(ids >= 0, tf.int32)


def round_values(values, columns, num_columns, quantize):
    """Numbers as a file stores them."""
    if quantize in (None, "int8_codebooks"):
        return values.astype("float32"), None, None
    if quantize == "float16":
        dtype = "int16"
    else:
        dtype = "int8" if values.min() < 0 else "uint8"
    levels = np.iinfo(dtype).max
    # A scale for each column takes no space in what columns are multiplied by.
    peaks = np.zeros(num_columns)
    np.maximum.at(peaks, columns, np.abs(values))
    peaks[peaks == 0] = 1
    stored = np.rint(values / peaks[columns] * levels).astype(dtype)
    # The step of the largest, up to a factor of 2: a power of 2 that float16
    # has, which is what the converter may make of it.
    step = 2.0 ** max(np.ceil(np.log2(peaks.max() / levels)), -24)
    return stored, peaks / levels / step, np.float32(step)


def _narrow_columns(columns, num_columns):
    """Columns in the narrowest type that can be gathered."""
    if num_columns <= 2**8:
        return columns.astype("uint8"), 0
    if num_columns <= 2**15:
        return columns.astype("int16"), 0
    if num_columns <= 2**16:
        return (columns - 2**15).astype("int16"), 2**15
    return columns.astype("int32"), 0
