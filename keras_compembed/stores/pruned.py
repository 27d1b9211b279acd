"""A store of the largest entries of rows, and their places."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.transform_rows import scatter_columns
from keras_compembed.litert.compressed_rows import CompressedRows
from keras_compembed.litert.compressed_rows import dense_rows
from keras_compembed.litert.compressed_rows import round_values
from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.stores.store import TableStore
from keras_compembed.stores.store import read_all
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_sparsity
from keras_compembed.utils.validation import float_chunks

# A column and the length of a part fit in a byte each.
_WIDEST = 255
# Parts of rows that share an offset.
_BLOCK = 16
# Standard deviation of uniform numbers from -0.05 to 0.05.
_STDDEV = 0.05 / 3**0.5
# Bytes of a number in a file, by `quantize`.
_BYTES = {"float16": 2, "int8": 1}
# Rows are read in windows if the longest is at most this times the mean.
_WINDOW_OF_MEANS = 4


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrunedNumbers(TableStore):
    """The nonzero entries of rows, and their columns."""

    settings = ("sparsity", "bits")
    attributes = ("num_nonzeros", "num_parts", "part_width")
    scales = second_table = None

    def __init__(self, input_dim, output_dim, sparsity=0.9, bits=None):
        super().__init__(input_dim, output_dim)
        self.sparsity = check_sparsity("sparsity", sparsity)
        self.bits = check_choice("bits", bits, (None, 8))
        share = 1 - self.sparsity
        self.num_nonzeros = max(1, round(input_dim * output_dim * share))
        self.num_parts = -(-output_dim // _WIDEST)
        self.part_width = -(-output_dim // self.num_parts)

    def make_variables(self, add):
        arrays = self._arrays(*self._random_numbers())
        trained = "values" if self.bits is None else "scales"
        self.add_arrays(add, arrays, trained)

    def _random_numbers(self):
        """Row lengths, columns and values, with equal lengths."""
        rng = np.random.default_rng(random.getrandbits(32))
        rows, width = self.input_dim, self.output_dim
        ends = np.arange(rows + 1) * self.num_nonzeros // rows
        lengths = np.diff(ends)
        owners = np.repeat(np.arange(rows), lengths)
        # Evenly spaced, from a random place.
        place = 1000 * (np.arange(len(owners)) - ends[owners])
        place += rng.integers(1000, size=rows)[owners]
        columns = place * width // (1000 * lengths[owners])
        values = rng.normal(size=len(columns)).clip(-3, 3)
        share = self.num_nonzeros / (rows * width)
        return lengths, columns, values * _STDDEV * share**-0.5

    def _arrays(self, lengths, columns, values):
        """Arrays of all weights, by name."""
        owners = np.repeat(np.arange(self.input_dim), lengths)
        parts = owners * self.num_parts + columns // self.part_width
        lengths = np.bincount(parts, minlength=self.input_dim * self.num_parts)
        places = RowPlaces.of_lengths(lengths)
        arrays = {
            "row_lengths": places.lengths,
            "row_starts": places.starts,
            "columns": (columns % self.part_width).astype("uint8"),
            "values": values,
        }
        if self.bits == 8:
            peaks = np.zeros(self.output_dim)
            np.maximum.at(peaks, columns, np.abs(values))
            arrays["scales"] = np.where(peaks == 0, 1, peaks) / 127
            values = np.rint(values / arrays["scales"][columns])
            arrays["values"] = values.astype("int8")
        return arrays

    def take_largest(self, table, weight):
        """Sets the entries of a table with the largest absolute values."""
        numbers = _largest(table, self.num_nonzeros, weight)
        for name, values in self._arrays(*numbers).items():
            getattr(self, name).assign(values)

    def compose(self, ids, read):
        places = RowPlaces(self.row_lengths.value, self.row_starts.value)
        starts, stops = places(self.parts_of_rows(self.known(ids)))
        # Fixed width of the longest part, for static shapes.
        steps = np.arange(self.part_width, dtype="int32")
        found = tf.expand_dims(starts, 1) + steps
        inside = found < tf.expand_dims(stops, 1)
        found = tf.where(inside, found, 0)
        columns = tf.cast(tf.gather(self.columns.value, found), tf.int32)
        columns = tf.where(inside, columns, self.part_width)
        # Not `read`: there are many places, and few trained values.
        values = read_all(self.values, found)
        if self.scales is not None:
            values = tf.cast(values, self.scales.dtype)
        parts = scatter_columns(columns, values, self.part_width)
        return self.join(parts, self.scales)

    def parts_of_rows(self, ids):
        """The parts of rows, int32 `(ids * num_parts,)`."""
        ids = tf.cast(ids, tf.int32)
        if self.num_parts == 1:
            return ids
        parts = np.arange(self.num_parts, dtype="int32")
        parts = tf.expand_dims(ids * self.num_parts, 1) + parts
        return tf.reshape(parts, (-1,))

    def join(self, parts, scales=None):
        """Rows `(ids, output_dim)` of their parts, times scales of columns."""
        rows = tf.reshape(parts, (-1, self.num_parts * self.part_width))
        if rows.shape[1] > self.output_dim:
            rows = rows[:, : self.output_dim]
        return rows if scales is None else rows * tf.convert_to_tensor(scales)

    def litert_bytes(self, quantize=None):
        """Bytes of the table's constants in a LiteRT file."""
        size = 1 if self.bits == 8 else _BYTES.get(quantize, 4)
        blocks = -(-self.input_dim * self.num_parts // _BLOCK)
        # One extra number at the end.
        numbers = 1 + self.num_nonzeros
        total = blocks * (_BLOCK + 4) + numbers * (1 + size)
        if size < 4:
            total += self.output_dim * (2 if quantize == "float16" else 4)
        return total

    def litert(self, options, path):
        return _PrunedForm(self, options)


class RowPlaces:
    """Places of rows of at most 255 entries, in about a byte each."""

    def __init__(self, lengths, starts):
        self.lengths = lengths
        self.starts = starts

    @classmethod
    def of_lengths(cls, row_lengths):
        """The places of consecutive rows."""
        blocks = -(-len(row_lengths) // _BLOCK)
        lengths = np.zeros((blocks, _BLOCK), "uint8")
        lengths.ravel()[: len(row_lengths)] = row_lengths
        totals = lengths.sum(axis=1, dtype="int64")
        return cls(lengths, (np.cumsum(totals) - totals).astype("int32"))

    def __call__(self, rows):
        """Begins and ends of rows, int32 tensors."""
        lengths = tf.cast(tf.gather(self.lengths, rows // _BLOCK), tf.int32)
        steps = np.arange(_BLOCK, dtype="int32")
        place = tf.expand_dims(rows % _BLOCK, 1)
        before = tf.cast(steps < place, tf.int32)
        own = tf.cast(tf.equal(steps, place), tf.int32)
        starts = tf.gather(self.starts, rows // _BLOCK)
        starts += tf.reduce_sum(lengths * before, axis=1)
        return starts, starts + tf.reduce_sum(lengths * own, axis=1)


class _PrunedForm(LiteRTForm):
    """Numbers and their columns in a LiteRT file."""

    def __init__(self, store, options):
        super().__init__(store, options)
        lengths = store.row_lengths.numpy().ravel().astype("int64")
        lengths = lengths[: store.input_dim * store.num_parts]
        columns = store.columns.numpy().astype("int64")
        values = keras.ops.convert_to_numpy(store.values)
        if store.scales is None:
            part = np.repeat(np.arange(len(lengths)) % store.num_parts, lengths)
            values, scales, step = round_values(
                np.append(values.astype("float64"), 0),
                np.append(columns + part * store.part_width, 0),
                store.output_dim,
                options.quantize,
            )
        else:
            scales = keras.ops.convert_to_numpy(store.scales)
            values, step = np.append(values, np.int8(0)), np.float32(1)
        self._scales = None if scales is None else scales.astype("float32")
        self._rows = CompressedRows(
            RowPlaces.of_lengths(lengths),
            lengths,
            np.append(columns, 0),
            values,
            store.part_width,
            step,
        )
        most = _WINDOW_OF_MEANS * self._rows.mean_length
        self._rows.has_windows |= self._rows.longest <= most

    def look_up(self, ids):
        parts, width = self.store.parts_of_rows(ids), self.store.part_width
        owners, columns, values = self._rows.read(parts)
        dense = dense_rows(owners, columns, values, tf.shape(parts), width)
        return self.store.join(dense, self._scales)


def _largest(table, number, weight):
    """Row lengths, columns and values of the largest absolute entries."""
    sizes = np.empty(table.shape, "float32")
    for start, rows in float_chunks(table):
        part = np.abs(rows)
        if weight is not None:
            part *= np.sqrt(weight[start : start + len(rows), None])
        sizes[start : start + len(rows)] = part
    flat = sizes.ravel()
    kept = np.argpartition(flat, len(flat) - number)[len(flat) - number :]
    rows, columns = np.divmod(np.sort(kept), table.shape[1])
    lengths = np.bincount(rows, minlength=len(table))
    return lengths, columns, np.asarray(table[rows, columns], "float32")
