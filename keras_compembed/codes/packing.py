"""Packing of codes, sums of codewords, and scores from codes."""

import functools
import operator

import numpy as np
import tensorflow as tf

from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.tensor_ops import in_xla
from keras_compembed.utils.tensor_ops import of_all_ids
from keras_compembed.utils.tensor_ops import split_rows
from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 22
# Rows of NumPy arrays to sum at a time, within a core's cache.
_CHUNK_ROWS = 256
# Codewords to gather at a time: XLA fuses the lookups, temporaries stay small.
_GROUP = 4
# Columns of a one-hot matrix, which bounds the memory per id.
_ONE_HOT_WIDTH = 256
# Largest codebook sizes with one-hot products: in the gradient, and on a CPU.
_SCATTER_ABOVE, _GATHER_ABOVE = 64, 16
# Least rows to read two bytes as one integer for a single vector: half the
# additions, with tables of 65,536 sums.
_WORD_ROWS = 1 << 16
# Most bits of an entry, as a table has the sum of each value.
_MOST_BITS = 16
_LEAST_VALUES = 256
_FIELD_ROWS = 1 << 16


def bits_per_subcode(codebook_size):
    """Bits of a subcode from 0 to `codebook_size - 1`."""
    return max(1, (codebook_size - 1).bit_length())


def bytes_per_row(num_codebooks, codebook_size):
    """Bytes of a packed row of `num_codebooks` subcodes."""
    return -(-num_codebooks * bits_per_subcode(codebook_size) // 8)


def code_dtype(codebook_size):
    """The smallest unsigned dtype that holds every subcode."""
    return np.dtype("uint8" if codebook_size <= 256 else "uint16")


def check_codes(codes, codebook_size, shape=None):
    codes = np.asarray(codes)
    require(
        codes.dtype.kind in "iu", "`codes` must be integers.", dtype=codes.dtype
    )
    rows, num_codebooks = shape or (None, None)
    require(
        codes.ndim == 2
        and rows in (None, codes.shape[0])
        and num_codebooks in (None, codes.shape[1]),
        "`codes` must have shape "
        f"({rows or 'rows'}, {num_codebooks or 'num_codebooks'}).",
        shape=codes.shape,
    )
    lowest, highest = int(codes.min(initial=0)), int(codes.max(initial=0))
    require(
        lowest >= 0 and highest < codebook_size,
        f"`codes` must be from 0 to {codebook_size - 1}.",
        lowest=lowest,
        highest=highest,
    )
    return codes.astype(code_dtype(codebook_size), copy=False)


def pack_codes(codes, codebook_size):
    codes = check_codes(codes, codebook_size)
    bits = bits_per_subcode(codebook_size)
    num_rows, num_codebooks = codes.shape
    width = bytes_per_row(num_codebooks, codebook_size)
    if bits == 8:
        return np.ascontiguousarray(codes)
    packed = np.empty((num_rows, width), dtype="uint8")
    places = np.arange(bits, dtype=codes.dtype)
    chunk = max(1, _CHUNK_ELEMENTS // (num_codebooks * bits))
    for start in range(0, num_rows, chunk):
        part = codes[start : start + chunk]
        stream = ((part[:, :, None] >> places) & 1).astype("uint8")
        packed[start : start + chunk] = np.packbits(
            stream.reshape(len(part), -1), axis=1, bitorder="little"
        )
    return packed


def unpack_codes(packed, num_codebooks, codebook_size):
    """Undoes `pack_codes`."""
    packed = np.asarray(packed)
    bits = bits_per_subcode(codebook_size)
    if bits == 8:
        return packed.copy()
    if 8 % bits == 0:
        # As many bytes as a byte has subcodes, looked up at once.
        digits = _digits(bits).view(f"u{8 // bits}").ravel()
        codes = digits.take(packed).view("uint8")[:, :num_codebooks]
        return np.ascontiguousarray(codes)
    dtype = code_dtype(codebook_size)
    codes = np.empty((len(packed), num_codebooks), dtype=dtype)
    weights = (1 << np.arange(bits)).astype(dtype)
    chunk = max(1, _CHUNK_ELEMENTS // (num_codebooks * bits))
    for start in range(0, len(packed), chunk):
        stream = np.unpackbits(
            packed[start : start + chunk],
            axis=1,
            count=num_codebooks * bits,
            bitorder="little",
        )
        stream = stream.reshape(-1, num_codebooks, bits)
        codes[start : start + chunk] = stream @ weights
    return codes


@functools.cache
def _digits(bits):
    """Subcodes `(256, subcodes)` of each value of a byte."""
    places = bits * np.arange(8 // bits)
    digits = (np.arange(256)[:, None] >> places) & (2**bits - 1)
    return digits.astype("uint8")


def sums_by_byte(codebooks):
    """Sums of codewords, float64 `(bytes, 256, columns)`, for each byte.

    None if bytes share subcodes.
    """
    num_codebooks, codebook_size, columns = codebooks.shape
    bits = bits_per_subcode(codebook_size)
    if 8 % bits:
        return None
    places = range(8 // bits)
    num_bytes = bytes_per_row(num_codebooks, codebook_size)
    parts = np.zeros((num_bytes * len(places), 2**bits, columns))
    parts[:num_codebooks, :codebook_size] = codebooks
    parts = parts.reshape(num_bytes, len(places), 2**bits, columns)
    return sum(parts[:, x, _digits(bits)[:, x]] for x in places)


def unpack_rows(rows, num_codebooks, codebook_size):
    """Undoes `pack_codes` for some rows, in TensorFlow ops."""
    bits = bits_per_subcode(codebook_size)
    if bits == 8:
        return tf.cast(rows, tf.int32)
    if bits in (1, 2, 4):
        subcodes = gather_fields(rows, _digits(bits), num_codebooks)
        return tf.cast(subcodes, tf.int32)
    first_bit = np.arange(num_codebooks, dtype="int32") * bits
    byte, shift = first_bit // 8, first_bit % 8
    last_byte = (first_bit[-1] + bits - 1) // 8
    values = tf.cast(tf.gather(rows, byte, axis=1), tf.int32)
    for step in range(1, -(-int(shift.max() + bits) // 8)):
        # The index is clipped at the last byte; its extra bits are masked
        # below.
        above = tf.gather(rows, np.minimum(byte + step, last_byte), axis=1)
        values += tf.cast(above, tf.int32) * 256**step
    if shift.any():
        values = tf.math.floordiv(values, 2**shift)
    return tf.math.floormod(values, 2**bits)


def gather_fields(rows, digits, width):
    """Fields of bytes, from a table with the fields of each byte."""
    fields = tf.gather(digits, tf.cast(rows, tf.int32))
    columns = rows.shape[1] * digits.shape[1]
    fields = tf.reshape(fields, (-1, columns))
    # Only if needed: slices are slow in LiteRT.
    return fields if columns == width else fields[:, :width]


def sum_codewords(codebooks, subcodes):
    """Sum of the codewords of subcodes (Shu & Nakayama, equation 1)."""
    num_codebooks, codebook_size, output_dim = codebooks.shape

    @custom_gradient
    def compose(codebooks):
        table = tf.reshape(codebooks, (-1, output_dim))
        # GPUs gather fast, and TensorFloat-32 products are less precise.
        has_gpu = tf.config.list_physical_devices("GPU")
        # On a CPU, XLA adds rows faster than it multiplies one-hot rows.
        by_rows = in_xla() and not has_gpu
        if has_gpu or by_rows or codebook_size > _GATHER_ABOVE:
            sums = _gathered_sums(table, subcodes, codebook_size)
        else:
            one_hots = _one_hots(subcodes, codebook_size, table.dtype)
            sums = (tf.matmul(x, table[rows]) for rows, x in one_hots)
        total = functools.reduce(operator.add, sums)

        def gradient(upstream):
            if codebook_size <= _SCATTER_ABOVE and not by_rows:
                one_hots = _one_hots(subcodes, codebook_size, upstream.dtype)
                parts = [
                    tf.matmul(x, upstream, transpose_a=True)
                    for _, x in one_hots
                ]
            else:
                parts = [
                    tf.math.unsorted_segment_sum(
                        upstream, subcodes[:, m], codebook_size
                    )
                    for m in range(num_codebooks)
                ]
            return tf.reshape(tf.concat(parts, axis=0), codebooks.shape)

        return total, gradient

    return compose(codebooks)


def _gathered_sums(table, subcodes, codebook_size):
    """Yields sums of a few codewords per id."""
    num_codebooks = subcodes.shape[1]
    # int64: int32 sums have no GPU kernel.
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    places = tf.cast(subcodes, tf.int64) + first
    for start in range(0, num_codebooks, _GROUP):
        part = tf.gather(table, places[:, start : start + _GROUP])
        yield tf.reduce_sum(part, axis=1)


def _one_hots(subcodes, codebook_size, dtype):
    """Yields `(slice of the codewords, one-hot matrix)`, by codebooks."""
    num_codebooks = subcodes.shape[1]
    group = max(1, _ONE_HOT_WIDTH // codebook_size)
    for start in range(0, num_codebooks, group):
        stop = min(start + group, num_codebooks)
        one_hot = tf.one_hot(
            subcodes[:, start:stop], codebook_size, dtype=dtype
        )
        width = (stop - start) * codebook_size
        yield (
            slice(start * codebook_size, stop * codebook_size),
            tf.reshape(one_hot, (-1, width)),
        )


def decode_codes(codes, codebooks):
    num_codebooks, codebook_size, width = codebooks.shape
    codes = check_codes(codes, codebook_size, shape=(None, num_codebooks))
    codebooks = np.asarray(codebooks, dtype="float32")
    rows = np.zeros((len(codes), width), dtype="float32")
    for start in range(0, len(codes), _CHUNK_ROWS):
        part = slice(start, start + _CHUNK_ROWS)
        total = rows[part]
        for codebook, subcodes in zip(codebooks, codes[part].T, strict=True):
            total += codebook.take(subcodes, axis=0)
    return rows


def count_codes(subcodes, weights, codebook_size):
    num_codebooks = subcodes.shape[1]
    width = num_codebooks * codebook_size
    groups, length = tf.unstack(tf.shape(weights))
    # int64, as counts may exceed int32, and int32 sums have no GPU kernel.
    # Cast here, as LiteRT cannot unstack int64 shapes.
    groups = tf.cast(groups, tf.int64)
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    start = tf.repeat(tf.range(groups) * width, length)
    places = tf.cast(subcodes, tf.int64) + first + tf.expand_dims(start, 1)
    values = tf.repeat(tf.reshape(weights, (-1,)), num_codebooks)
    # Much faster with flat tensors.
    counts = tf.math.unsorted_segment_sum(
        values, tf.reshape(places, (-1,)), groups * width
    )
    return tf.reshape(counts, (-1, num_codebooks, codebook_size))


class CodeScores:
    """Scores rows by lookup of their subcodes' scores."""

    def __init__(self, packed_codes, num_codebooks, codebook_size):
        self._packed = packed_codes
        self._num_rows = packed_codes.shape[0]
        self._code_shape = num_codebooks, codebook_size
        self._bits = bits_per_subcode(codebook_size)
        # No unpacking needed if no subcode crosses a byte.
        self._reads_bytes = 8 % self._bits == 0

    def tables(self, codebooks, vectors):
        """Scores of subcodes, `(parts, size, vectors)`."""
        num_codebooks, codebook_size, width = codebooks.shape
        flat = tf.reshape(codebooks, (-1, width))
        tables = tf.matmul(flat, vectors, transpose_b=True)
        tables = tf.reshape(
            tables, (num_codebooks, codebook_size, tf.shape(vectors)[0])
        )
        if not self._reads_bytes:
            return tables
        has_words = vectors.shape[0] == 1 and self._num_rows >= _WORD_ROWS
        return join_tables(tables, self._bits, 16 if has_words else 8)

    def score(self, tables):
        """Scores `(vectors, rows)` from `tables`."""
        num_parts, _, count = tables.shape
        # Unknown counts are small: see `Codes.score`.
        numbers = 4 * max(num_parts, 2 * (count or 1))
        size = max(1, min(self._num_rows, _CHUNK_ELEMENTS // numbers))

        @custom_gradient
        def add_up(tables):
            scores = of_all_ids(
                lambda ids: self.add_up(tables, self._slice(ids)),
                self._num_rows,
                size,
            )

            def gradient(upstream):
                parts = (
                    split_rows(self._packed, self._num_rows, size),
                    split_rows(upstream, self._num_rows, size),
                )
                return tf.foldl(
                    lambda total, part: total + self._sums(*part, tables),
                    parts,
                    tf.zeros_like(tables),
                    parallel_iterations=1,
                )

            return scores, gradient

        return tf.transpose(add_up(tables))

    def _slice(self, ids):
        """Packed codes of consecutive ids, without a copy."""
        first = tf.stack([ids[0], 0])
        size = tf.stack([tf.size(ids), self._packed.shape[1]])
        return tf.slice(self._packed, first, size)

    def add_up(self, tables, packed):
        """Scores `(rows, vectors)` of packed rows."""
        numbers = self._read(packed, tables)
        return tf.add_n(list(map(tf.gather, tf.unstack(tables), numbers)))

    def score_rows(self, tables, ids):
        """Scores `(vectors, ids)` of rows by a rank-1 tensor of ids."""
        return tf.transpose(self.add_up(tables, tf.gather(self._packed, ids)))

    def _sums(self, packed, upstream, tables):
        return tf.stack(
            [
                tf.math.unsorted_segment_sum(upstream, numbers, tables.shape[1])
                for numbers in self._read(packed, tables)
            ]
        )

    def _read(self, packed, tables):
        """Integers of packed rows, for each of `tables`."""
        if not self._reads_bytes:
            numbers = unpack_rows(packed, *self._code_shape)
            return tf.unstack(numbers, axis=1)
        num_tables, size, _ = tables.shape
        if size == 1 << 16:
            packed = tf.pad(packed, ((0, 0), (0, packed.shape[1] % 2)))
            pairs = tf.reshape(packed, (-1, num_tables, 2))
            packed = tf.bitcast(pairs, tf.uint16)
        return tf.unstack(tf.cast(packed, tf.int32), axis=1)


def join_tables(tables, bits, joint_bits):
    """Tables for integers of several subcodes, the first in the lowest bits."""
    num_tables, size = tables.shape[:2]
    tables = tf.pad(tables, ((0, 0), (0, 2**bits - size), (0, 0)))
    count = tf.shape(tables)[2]
    while bits < joint_bits:
        tables = tf.pad(tables, ((0, num_tables % 2), (0, 0), (0, 0)))
        low, high = tables[0::2], tables[1::2]
        num_tables, bits = -(-num_tables // 2), 2 * bits
        tables = high[:, :, None] + low[:, None]
        tables = tf.reshape(tables, (num_tables, 2**bits, count))
    return tables


class FieldColumns:
    """Sums table entries by the fields of each row, in plain arrays."""

    def __init__(self, packed, num_fields, bits):
        num_rows = len(packed)
        joint = max(1, _MOST_BITS // bits)
        # Whole bytes, if subcodes share none.
        step = 1 if 8 % bits else 8 // bits
        # Larger tables of sums would cost more than they save.
        most = max(_LEAST_VALUES, num_rows)
        while joint > step and 2 ** (bits * joint) > most:
            joint -= step
        self._bits, self._joint = bits, joint
        dtype = np.min_scalar_type(2 ** (bits * joint) - 1)
        if 8 % bits == 0:
            # The entries are as in the packed rows.
            room = (0, 0), (0, -packed.shape[1] % dtype.itemsize)
            packed = np.pad(packed, room).view(dtype.newbyteorder("<"))
            self._columns = packed.T.astype(dtype, order="C")
            return
        fields = unpack_codes(packed, num_fields, 2**bits)
        self._columns = np.zeros((-(-num_fields // joint), num_rows), dtype)
        for start in range(0, num_rows, _FIELD_ROWS):
            part = slice(start, start + _FIELD_ROWS)
            for place in range(joint):
                field = fields[part, place::joint].T.astype(dtype)
                columns = self._columns[: len(field), part]
                columns |= field << np.array(bits * place, dtype)

    def add_up(self, tables):
        """Sums `(rows,)` of table entries."""
        tables = np.asarray(tables, "float32")
        num_fields, size = tables.shape
        room = (0, -num_fields % self._joint), (0, 2**self._bits - size)
        tables = np.pad(tables, room)
        parts = tables.reshape(-1, self._joint, 2**self._bits)
        # The first field is in the lowest bits.
        sums = parts[:, 0]
        for place in range(1, self._joint):
            sums = parts[:, place, :, None] + sums[:, None, :]
            sums = sums.reshape(len(parts), -1)
        total = np.zeros(self._columns.shape[1], "float32")
        for table, column in zip(sums, self._columns, strict=True):
            total += table.take(column)
        return total
