"""Embedding of which only some numbers are not zero."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.table_embedding import TableEmbedding
from keras_compembed.layers.table_embedding import read_all
from keras_compembed.transforms.fixed_rows import scatter_columns
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_sparsity
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import float_chunks

# So that a column and the length of a part fit a byte each.
_WIDEST = 255
# Parts of rows counted from a common place.
_BLOCK = 16
# Of numbers drawn from -0.05 to 0.05.
_STDDEV = 0.05 / 3**0.5


@keras.saving.register_keras_serializable(package="keras_compembed")
class SparseEmbedding(TableEmbedding):
    """Holds the numbers of a table that are not zero, and where they are.

    What magnitude pruning leaves of a table. Each number takes a byte for its
    column beside itself, each row 1.25 bytes for its length; rows of more
    than 255 columns are several parts, each with a length of its own.
    Training moves the numbers, and no others become different from 0. A new
    layer has random numbers in random places, as many in each row.

    Example:

    >>> layer = SparseEmbedding(1000, 64, sparsity=0.9)
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 64])
    >>> layer.num_nonzeros
    6400

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        sparsity: Number from 0 to below 1, the share of zeros. Defaults to
            `0.9`.
        bits: `None` for numbers that are floats, or `8` for int8, times a
            float of each column; training then moves only these. Defaults
            to `None`.
        mask_zero: Boolean. Whether id 0 is padding to be masked. Defaults to
            `False`.
        seed: Optional integer. Seed of what begins at random.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table.

    Attributes:
        num_nonzeros: Integer, numbers held.
        num_parts: Integer, parts of a row.
        part_width: Integer, columns of a part.

    Raises:
        ValueError: if a size is out of range.

    References:
        - [Zhu & Gupta, 2017](https://arxiv.org/abs/1710.01878)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        sparsity=0.9,
        bits=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        self.sparsity = check_sparsity("sparsity", sparsity)
        self.bits = check_choice("bits", bits, (None, 8))
        self.num_nonzeros = count_nonzeros(input_dim, output_dim, sparsity)
        self.num_parts = count_parts(output_dim)
        self.part_width = -(-output_dim // self.num_parts)

    @classmethod
    def from_table(
        cls, table, sparsity=0.9, bits=None, sample_weight=None, **kwargs
    ):
        """Keeps the numbers of a trained table that are furthest from 0.

        Of a table that was pruned while it was trained, these are the ones
        that are not 0.

        Args:
            table: Array `(input_dim, output_dim)`.
            sparsity: Number from 0 to below 1, the share of zeros. Defaults
                to `0.9`.
            bits: `None` or `8`. Defaults to `None`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts: then numbers are compared times its root.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `SparseEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.
        """
        table = check_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        layer = cls(*table.shape, sparsity, bits, **kwargs)
        layer.build()
        numbers = _largest(table, layer.num_nonzeros, weight)
        arrays = layer._arrays(*numbers)
        for name, values in arrays.items():
            getattr(layer, name).assign(values)
        return layer

    def build(self, input_shape=None):
        if self.built:
            return
        self.scales = None
        for name, values in self._arrays(*self._random_numbers()).items():
            trains = name == ("values" if self.bits is None else "scales")
            dtype = self.variable_dtype if trains else values.dtype.name
            weight = self.add_values(name, values, dtype, trains)
            setattr(self, name, weight)
        self.built = True

    def _random_numbers(self):
        """Row lengths, columns and values: as many numbers in each row."""
        seed = random.getrandbits(32) if self.seed is None else self.seed
        rng = np.random.default_rng(seed)
        rows, width = self.input_dim, self.output_dim
        ends = np.arange(rows + 1) * self.num_nonzeros // rows
        lengths = np.diff(ends)
        owners = np.repeat(np.arange(rows), lengths)
        # At even distances, from a random place.
        place = 1000 * (np.arange(len(owners)) - ends[owners])
        place += rng.integers(1000, size=rows)[owners]
        columns = place * width // (1000 * lengths[owners])
        values = rng.normal(size=len(columns)).clip(-3, 3)
        share = self.num_nonzeros / (rows * width)
        return lengths, columns, values * _STDDEV * share**-0.5

    def _arrays(self, lengths, columns, values):
        """Arrays of all weights for the numbers of rows, by their names."""
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

    def embed(self, ids, read=read_all):
        places = RowPlaces(self.row_lengths.value, self.row_starts.value)
        starts, stops = places(self.parts(self.known(ids)))
        # Wide enough for any part: then all shapes are known.
        steps = np.arange(self.part_width, dtype="int32")
        found = tf.expand_dims(starts, 1) + steps
        inside = found < tf.expand_dims(stops, 1)
        found = tf.where(inside, found, 0)
        columns = tf.cast(tf.gather(self.columns.value, found), tf.int32)
        columns = tf.where(inside, columns, self.part_width)
        # Not `read`: places are many, and what is trained is small.
        values = read_all(self.values, found)
        values = tf.cast(values, self.variable_dtype)
        parts = scatter_columns(columns, values, self.part_width)
        return self.join(parts, self.scales)

    def parts(self, ids):
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

    def compressed_rows(self):
        """Lengths of parts, columns in parts and in rows, and the numbers."""
        self._require_built("compressed_rows")
        lengths = self.row_lengths.numpy().ravel().astype("int64")
        lengths = lengths[: self.input_dim * self.num_parts]
        columns = self.columns.numpy().astype("int64")
        part = np.repeat(np.arange(len(lengths)) % self.num_parts, lengths)
        values = keras.ops.convert_to_numpy(self.values)
        return lengths, columns, columns + part * self.part_width, values

    def get_config(self):
        config = {"sparsity": self.sparsity, "bits": self.bits}
        return {**super().get_config(), **config}


class RowPlaces:
    """Places of rows of at most 255 numbers, in a byte and a bit each."""

    def __init__(self, lengths, starts):
        self.lengths = lengths
        self.starts = starts

    @classmethod
    def of_lengths(cls, row_lengths):
        """The places of rows that follow each other."""
        blocks = -(-len(row_lengths) // _BLOCK)
        lengths = np.zeros((blocks, _BLOCK), "uint8")
        lengths.ravel()[: len(row_lengths)] = row_lengths
        totals = lengths.sum(axis=1, dtype="int64")
        return cls(lengths, (np.cumsum(totals) - totals).astype("int32"))

    def __call__(self, rows):
        """Where rows begin and end, int32 tensors."""
        lengths = tf.cast(tf.gather(self.lengths, rows // _BLOCK), tf.int32)
        steps = np.arange(_BLOCK, dtype="int32")
        place = tf.expand_dims(rows % _BLOCK, 1)
        before = tf.cast(steps < place, tf.int32)
        own = tf.cast(tf.equal(steps, place), tf.int32)
        starts = tf.gather(self.starts, rows // _BLOCK)
        starts += tf.reduce_sum(lengths * before, axis=1)
        return starts, starts + tf.reduce_sum(lengths * own, axis=1)


def count_nonzeros(input_dim, output_dim, sparsity):
    """Integer, numbers of a table that are not zero, at least 1."""
    return max(1, round(input_dim * output_dim * (1 - sparsity)))


def count_parts(output_dim):
    """Integer, parts of a row."""
    return -(-output_dim // _WIDEST)


def count_place_bytes(num_rows):
    """Integer, bytes of the places of rows or of parts of rows."""
    return -(-num_rows // _BLOCK) * (_BLOCK + 4)


def _largest(table, number, weight):
    """Row lengths, columns and values of the numbers furthest from 0."""
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
