"""Embedding of which only some numbers are not zero."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.row_places import BLOCK
from keras_compembed.baselines.row_places import RowPlaces
from keras_compembed.baselines.row_places import count_blocks
from keras_compembed.transforms.fixed_rows import scatter_columns
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_sparsity
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import float_chunks

# So that a column and the length of a part fit a byte each.
_WIDEST = 255
_CHUNK_NUMBERS = 1 << 22
# Of a number in a file, by `quantize`.
_BYTES = {"float16": 2, "int8": 1}


@keras.saving.register_keras_serializable(package="keras_compembed")
class SparseEmbedding(EmbeddingBaseline):
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
        self.num_parts, self.part_width = split_columns(output_dim)

    @classmethod
    def from_table(
        cls,
        table,
        sparsity=0.9,
        bits=None,
        sample_weight=None,
        seed=None,
        verbose=1,
        **kwargs,
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
            seed: Optional integer. It makes no difference.
            verbose: `0` or `1`. It makes no difference.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `SparseEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.
        """
        table = check_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        layer = cls(*table.shape, sparsity, bits, seed=seed, **kwargs)
        layer.build()
        layer._assign(*_largest(table, layer.num_nonzeros, weight))
        return layer

    def litert_bytes(self, quantize=None):
        """Same as for other baselines."""
        blocks = count_blocks(self.input_dim * self.num_parts)
        size = 1 if self.bits == 8 else _BYTES.get(quantize, 4)
        # The last number is of no row.
        total = blocks * (BLOCK + 4) + (self.num_nonzeros + 1) * (1 + size)
        if size < 4:
            total += self.output_dim * (2 if quantize == "float16" else 4)
        return total

    def build(self, input_shape=None):
        if self.built:
            return
        blocks = count_blocks(self.input_dim * self.num_parts)
        start = _RandomRows(self)

        def add(name, shape, dtype, trainable=False):
            return self.add_weight(
                shape=shape,
                initializer=start.initializer(name),
                dtype=dtype,
                trainable=trainable,
                autocast=False,
                name=name,
            )

        shape = (self.num_nonzeros,)
        self.row_lengths = add("row_lengths", (blocks, BLOCK), "uint8")
        self.row_starts = add("row_starts", (blocks,), "int32")
        self.columns = add("columns", shape, "uint8")
        dtype = self.variable_dtype
        self.scales = None
        if self.bits == 8:
            self.values = add("values", shape, "int8")
            self.scales = add("scales", (self.output_dim,), dtype, True)
        else:
            self.values = add("values", shape, dtype, True)
        self.built = True

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
        """What is held, as arrays.

        Returns:
            Tuple of the lengths of parts of rows `(input_dim * num_parts,)`,
            the columns of numbers within their parts, the columns within
            rows, and the numbers, int8 or floats.
        """
        self._require_built("compressed_rows")
        lengths = self.row_lengths.numpy().ravel().astype("int64")
        lengths = lengths[: self.input_dim * self.num_parts]
        columns = self.columns.numpy().astype("int64")
        part = np.repeat(np.arange(len(lengths)) % self.num_parts, lengths)
        return (
            lengths,
            columns,
            columns + part * self.part_width,
            keras.ops.convert_to_numpy(self.values),
        )

    def _assign(self, row_lengths, columns, values):
        """Takes other numbers."""
        rows = np.repeat(np.arange(self.input_dim), row_lengths)
        parts = rows * self.num_parts + columns // self.part_width
        lengths = np.bincount(parts, minlength=self.input_dim * self.num_parts)
        lengths, starts = RowPlaces.pack(lengths)
        self.row_lengths.assign(lengths)
        self.row_starts.assign(starts)
        self.columns.assign((columns % self.part_width).astype("uint8"))
        if self.scales is not None:
            peaks = np.zeros(self.output_dim)
            np.maximum.at(peaks, columns, np.abs(values))
            scales = np.where(peaks == 0, 1, peaks) / 127
            self.scales.assign(scales)
            values = np.rint(values / scales[columns]).astype("int8")
        self.values.assign(values)

    def get_config(self):
        return {
            **super().get_config(),
            "sparsity": self.sparsity,
            "bits": self.bits,
        }


def count_nonzeros(input_dim, output_dim, sparsity):
    """Integer, numbers of a table that are not zero, at least 1."""
    return max(1, round(input_dim * output_dim * (1 - sparsity)))


def split_columns(output_dim):
    """Parts of a row, and columns of a part, as integers."""
    parts = -(-output_dim // _WIDEST)
    return parts, -(-output_dim // parts)


def _largest(table, number, weight):
    """The numbers furthest from 0, row after row."""
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


class _RandomRows:
    """Initializers of a layer: random numbers, as many in each row."""

    def __init__(self, layer):
        self._layer = layer
        seed = layer.seed
        self._seed = random.getrandbits(32) if seed is None else seed
        self._arrays = None

    def initializer(self, name):
        """A function from shape and dtype to a tensor."""

        def make(shape, dtype=None):
            if self._arrays is None:
                self._arrays = self._make()
            return tf.convert_to_tensor(self._arrays[name], dtype)

        return make

    def _make(self):
        layer = self._layer
        rng = np.random.default_rng(self._seed)
        rows, width = layer.input_dim, layer.output_dim
        ends = np.arange(rows + 1) * layer.num_nonzeros // rows
        columns = []
        size = max(1, _CHUNK_NUMBERS // width)
        for start in range(0, rows, size):
            counts = np.diff(ends[start : start + size + 1])
            order = rng.random((len(counts), width)).argsort(axis=1)
            kept = np.zeros(order.shape, bool)
            chosen = np.arange(width) < counts[:, None]
            np.put_along_axis(kept, order, chosen, axis=1)
            columns.append(np.nonzero(kept)[1])
        columns = np.concatenate(columns)
        owners = np.repeat(np.arange(rows), np.diff(ends))
        parts = owners * layer.num_parts + columns // layer.part_width
        lengths = np.bincount(parts, minlength=rows * layer.num_parts)
        lengths, starts = RowPlaces.pack(lengths)
        share = layer.num_nonzeros / (rows * width)
        spread = layer.INITIAL_STDDEV * share**-0.5
        values = rng.normal(size=len(columns)).clip(-3, 3)
        if layer.bits == 8:
            values = np.rint(values * 127 / 3).astype("int8")
            spread *= 3 / 127
        else:
            values = values * spread
        return {
            "row_lengths": lengths,
            "row_starts": starts,
            "columns": (columns % layer.part_width).astype("uint8"),
            "values": values,
            "scales": np.full(width, spread),
        }
