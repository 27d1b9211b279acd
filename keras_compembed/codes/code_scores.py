"""Scores of all rows of a table held as codes, without the table."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.utils.chunks import of_all_ids
from keras_compembed.utils.chunks import split_rows
from keras_compembed.utils.custom_gradient import custom_gradient

# Numbers in the largest of tensors that are held beyond the scores.
_NUMBERS = 1 << 22
# From so many rows on, two bytes are read as one number for a single vector:
# half the additions, in tables of 65,536 sums.
_WORD_ROWS = 1 << 16
# Bits of an entry at most: sums of all its values are held in a table.
_MOST_BITS = 16
_LEAST_VALUES = 256
_CHUNK_ROWS = 1 << 16


class CodeScores:
    """Scores rows by the sub-scores of their codes."""

    def __init__(self, packed_codes, num_codebooks, codebook_size):
        self._packed = packed_codes
        self._num_rows = packed_codes.shape[0]
        self._code_shape = num_codebooks, codebook_size
        self._bits = bits_per_subcode(codebook_size)
        # Bytes need not be unpacked where none is part of two subcodes.
        self._reads_bytes = 8 % self._bits == 0

    def tables(self, codebooks, vectors):
        """Scores that columns of codes contribute, `(parts, size, vectors)`."""
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
        """Scores `(vectors, rows)` by all of `tables`."""
        num_parts, _, count = tables.shape
        # Unknown counts are small: see `Codes.score`.
        numbers = 4 * max(num_parts, 2 * (count or 1))
        size = max(1, min(self._num_rows, _NUMBERS // numbers))

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
        """Packed codes of ids that follow one another, without a copy."""
        first = tf.stack([ids[0], 0])
        size = tf.stack([tf.size(ids), self._packed.shape[1]])
        return tf.slice(self._packed, first, size)

    def add_up(self, tables, packed):
        """Scores `(rows, vectors)` of some rows of packed codes."""
        numbers = self._read(packed, tables)
        return tf.add_n(list(map(tf.gather, tf.unstack(tables), numbers)))

    def score_rows(self, tables, ids):
        """Scores `(vectors, ids)` of the rows of a rank-1 tensor of ids."""
        return tf.transpose(self.add_up(tables, tf.gather(self._packed, ids)))

    def _sums(self, packed, upstream, tables):
        return tf.stack(
            [
                tf.math.unsorted_segment_sum(upstream, numbers, tables.shape[1])
                for numbers in self._read(packed, tables)
            ]
        )

    def _read(self, packed, tables):
        """Numbers of rows of packed codes, for each of `tables`."""
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
    """Tables for numbers of several subcodes, the first in the lowest bits."""
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
    """Adds up what the numbers of each row stand for, in plain arrays."""

    def __init__(self, fields, bits):
        num_rows, num_fields = fields.shape
        joint = max(1, _MOST_BITS // bits)
        # Tables of sums are not to be dearer than what they save.
        while joint > 1 and 2 ** (bits * joint) > max(_LEAST_VALUES, num_rows):
            joint -= 1
        self._bits, self._joint = bits, joint
        dtype = np.min_scalar_type(2 ** (bits * joint) - 1)
        self._columns = np.zeros((-(-num_fields // joint), num_rows), dtype)
        for start in range(0, num_rows, _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            for place in range(joint):
                field = fields[part, place::joint].T.astype(dtype)
                columns = self._columns[: len(field), part]
                columns |= field << np.array(bits * place, dtype)

    def add_up(self, tables):
        """Sums `(rows,)` of what numbers stand for."""
        tables = np.asarray(tables, "float32")
        num_fields, size = tables.shape
        room = (0, -num_fields % self._joint), (0, 2**self._bits - size)
        tables = np.pad(tables, room)
        parts = tables.reshape(-1, self._joint, 2**self._bits)
        # The first field stands in the lowest bits.
        sums = parts[:, 0]
        for place in range(1, self._joint):
            sums = parts[:, place, :, None] + sums[:, None, :]
            sums = sums.reshape(len(parts), -1)
        total = np.zeros(self._columns.shape[1], "float32")
        for table, column in zip(sums, self._columns, strict=True):
            total += table.take(column)
        return total
