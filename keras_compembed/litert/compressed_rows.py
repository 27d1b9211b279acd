"""Sparse rows in a LiteRT file: values, columns and offsets."""

import numpy as np
import tensorflow as tf

# Up to this longest row, padded windows are as fast as exact rows.
_WINDOW = 16
# Block sizes: entries of a block share an offset.
_BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
# Set bits of the numbers below 128.
_BIT_COUNTS = np.array([bin(bits).count("1") for bits in range(128)], "uint8")
# More ops are used only if bytes shrink below this share.
_WORTHWHILE = 0.5


class CompressedRows:
    """Rows with only their nonzero values in the file."""

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
        self.has_windows = self.longest <= _WINDOW

    def may_read_windows(self, ids):
        """Whether rows may be read in windows, which have static shapes."""
        return ids.shape[0] is not None and self.has_windows

    def read(self, ids):
        """Rows, columns and values of entries; windows may contain 0."""
        if not self.may_read_windows(ids):
            return self.numbers(ids)
        rows = tf.cumsum(ones_like_ids(ids), exclusive=True)
        return tf.expand_dims(rows, 0), *self.windows(ids)

    def numbers(self, ids):
        """Rows, columns and values of entries, one after another."""
        starts, stops = self.offsets(ids)
        lengths = stops - starts
        ends = tf.cumsum(lengths)
        total = tf.reduce_sum(lengths, keepdims=True)
        # The row of an entry is the count of rows that end before it.
        ones = ones_like_ids(ids)
        marks = tf.scatter_nd(tf.expand_dims(ends, 1), ones, total + 1)
        rows = tf.cumsum(marks)[:-1]
        places = tf.range(total[0]) + tf.gather(stops - ends, rows)
        return rows, *self._read(places)

    def windows(self, ids):
        """Columns and values `(longest, ids)` of rows, of static shape."""
        starts, stops = self.offsets(ids)
        # The window axis first: it broadcasts faster.
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
    """Entries as a matrix `(num_rows, num_columns)`."""
    cells = rows * num_columns + columns
    dense = tf.scatter_nd(
        tf.reshape(cells, (-1, 1)),
        tf.reshape(values, (-1,)),
        tf.multiply(num_rows, num_columns),
    )
    return tf.reshape(dense, (-1, num_columns))


def ones_like_ids(ids):
    """int32 ones that the converter cannot fold."""
    return tf.cast(ids >= 0, tf.int32)


def round_values(values, columns, num_columns, quantize):
    """Values as a file stores them."""
    if quantize in (None, "int8_codebooks"):
        return values.astype("float32"), None, None
    if quantize == "float16":
        dtype = "int16"
    else:
        dtype = "int8" if values.min() < 0 else "uint8"
    levels = np.iinfo(dtype).max
    # A scale for each column goes into the next matrix at no cost.
    peaks = np.zeros(num_columns)
    np.maximum.at(peaks, columns, np.abs(values))
    peaks[peaks == 0] = 1
    stored = np.rint(values / peaks[columns] * levels).astype(dtype)
    # The step is a power of 2 that float16 holds exactly, as the converter may
    # use float16.
    step = 2.0 ** max(np.ceil(np.log2(peaks.max() / levels)), -24)
    return stored, peaks / levels / step, np.float32(step)


def _narrow_columns(columns, num_columns):
    """Columns in the smallest type that can be gathered."""
    if num_columns <= 2**8:
        return columns.astype("uint8"), 0
    if num_columns <= 2**15:
        return columns.astype("int16"), 0
    if num_columns <= 2**16:
        return (columns - 2**15).astype("int16"), 2**15
    return columns.astype("int32"), 0


class PackedOffsets:
    """Offsets of compressed rows, as tables that LiteRT reads."""

    def __init__(self, offsets):
        self._places = _RisingNumbers(offsets)
        self._bits = None
        self.tables = self._places.tables
        present = np.diff(offsets) > 0
        bits = np.packbits(present, bitorder="little")
        counts = np.add.reduceat(present, np.arange(0, len(present), 8))
        ranks = _RisingNumbers(np.cumsum(counts) - counts)
        places = _RisingNumbers(np.append(offsets[:-1][present], offsets[-1]))
        tables = [bits, *ranks.tables, _BIT_COUNTS, *places.tables]
        if _nbytes(tables) < _WORTHWHILE * self.nbytes:
            self._bits, self._ranks, self._places = bits, ranks, places
            self.tables = tables

    @property
    def nbytes(self):
        """Integer, bytes in the file."""
        return _nbytes(self.tables)

    def __call__(self, ids):
        """Begins and ends of rows, int32 tensors."""
        first, last = ids, ids + 1
        if self._bits is not None:
            byte, place = ids // 8, ids % 8
            bits = tf.cast(tf.gather(self._bits, byte), tf.int32)
            unit = tf.gather(2 ** np.arange(8, dtype="int32"), place)
            below = tf.gather(_BIT_COUNTS, bits % unit)
            first = self._ranks(byte) + tf.cast(below, tf.int32)
            # An empty row ends where it begins.
            last = first + bits // unit % 2
        return tf.split(self._places(tf.concat([first, last], axis=0)), 2)


class _RisingNumbers:
    """Ascending integers, stored as block offsets plus small integers."""

    def __init__(self, numbers):
        self.tables = [numbers.astype("int32")]
        self._block = 1
        for block in _BLOCKS:
            coarse = numbers[::block].astype("int32")
            fine = numbers - np.repeat(coarse, block)[: len(numbers)]
            if fine.max() > np.iinfo("int16").max:
                break
            fine = fine.astype("uint8" if fine.max() < 256 else "int16")
            if _nbytes([coarse, fine]) < _nbytes(self.tables):
                self.tables = [coarse, fine]
                self._block = block

    def __call__(self, places):
        if self._block == 1:
            return tf.gather(self.tables[0], places)
        coarse, fine = self.tables
        numbers = tf.gather(coarse, places // self._block)
        return numbers + tf.cast(tf.gather(fine, places), tf.int32)


def _nbytes(tables):
    return sum(table.nbytes for table in tables)
