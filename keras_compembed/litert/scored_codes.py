"""Codes in a LiteRT file, and how all ids are scored from them."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.code_scores import join_tables
from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import part_of_column
from keras_compembed.litert.flatbuffer import StoredTable
from keras_compembed.litert.litert_form import RowChunks
from keras_compembed.litert.litert_form import unknown_zero

# Ids at a time: what is held of them fits into a cache.
_CHUNK = 1 << 16
# From so many ids on, and up to so many vectors, two bytes of a code are read
# as one number: half the look-ups, in tables of so many sums.
_WORD_ROWS = 1 << 16
_WORD_VECTORS = 4


class StoredCodes:
    """The codes of a store in a file, and how they are read."""

    def __init__(self, store, path):
        self.num_codebooks = store.num_codebooks
        self.codebook_size = store.codebook_size
        self.bits = bits_per_subcode(self.codebook_size)
        self.is_aligned = self.bits in (1, 2, 4, 8)
        self.per_byte = 8 // self.bits if self.is_aligned else 1
        packed = store.packed()
        self.table = StoredTable(f"{path}/codes", packed, packed)

    def read(self, ids, together=1):
        """Subcodes, int32 `(ids, num_codebooks)`, of a rank-1 tensor of ids."""
        # Bytes as they are, also of ids of another rank.
        rows = tf.gather(self.table.packed, ids)
        if together > 1:
            return tf.cast(rows, tf.int32)
        return unpack_rows(rows, self.num_codebooks, self.codebook_size)


class ScoredCodes:
    """Scores all ids by sums of what their subcodes give to a score."""

    def __init__(self, store, codes, codebooks, options):
        self._options = options
        self._codes, self._bits = codes, codes.bits
        self._packed = codes.table.packed
        self._num_rows, self._width = store.input_dim, store.output_dim
        composition = store.composition.unscaled()
        self._is_concat = isinstance(composition, ConcatComposition)
        self._codebooks = codebooks
        if self._is_concat:
            self._codebooks = _own_columns(codebooks)
        self._stored = {}
        # Of a single chunk, the converter swaps the transposition with what
        # comes after, and marks would be found before it.
        self._num_chunks = max(2, -(-self._num_rows // _CHUNK))
        self._num_chunks = min(self._num_rows, self._num_chunks)
        self._chunk = -(-self._num_rows // self._num_chunks)

    def chunks(self, vectors, is_looked_up):
        """Yields scores `(vectors, ids)` of all ids, chunk by chunk."""
        tables = self._sub_scores(vectors)
        by_rows = is_looked_up or 8 % self._bits
        chunks = self._by_rows if by_rows else self._by_columns
        for scores in chunks(vectors, tables):
            yield tf.transpose(scores)

    def _sub_scores(self, vectors):
        """Products with codewords `(num_codebooks, codebook_size, vectors)`."""
        codes = self._codes
        shape = codes.num_codebooks, codes.codebook_size, tf.shape(vectors)[0]
        if self._is_concat:
            owners = part_of_column(self._width, shape[0])
            ends = np.cumsum(np.bincount(owners))
            parts = np.split(self._codebooks, ends[:-1], axis=1)
            products = [
                self._multiply(vectors[:, end - part.shape[1] : end], part)
                for end, part in zip(ends, parts, strict=True)
            ]
            products = tf.concat(products, axis=1)
        else:
            flat = self._codebooks.reshape(-1, self._width)
            products = self._multiply(vectors, flat)
        return tf.reshape(tf.transpose(products), shape)

    def _multiply(self, vectors, codewords):
        codewords = self._options.note(np.ascontiguousarray(codewords))
        return tf.matmul(vectors, codewords, transpose_b=True)

    def _by_rows(self, vectors, tables):
        """By codes read as look-ups read them."""
        together = self._codes.per_byte
        if together > 1:
            tables = join_tables(tables, self._bits, 8)
        num_tables, size = tables.shape[:2]
        flat = tf.reshape(tables, (num_tables * size, tf.shape(vectors)[0]))
        first = np.arange(num_tables, dtype="int32") * size
        for ids in RowChunks(self._num_rows, 1, self._chunk).ids(vectors):
            places = self._codes.read(ids, together) + first
            yield tf.reduce_sum(tf.gather(flat, places), axis=1)

    def _by_columns(self, vectors, tables):
        """By codes of the file's own."""
        count = vectors.shape[0]
        size = 1
        if self._num_rows >= _WORD_ROWS and (count or 1) <= _WORD_VECTORS:
            size = 2
        tables = tf.unstack(join_tables(tables, self._bits, 8 * size))
        columns = self._columns(size)
        zero = unknown_zero(vectors)
        for chunk in range(self._num_chunks):
            scores = None
            for place, table in enumerate(tables):
                row = tf.reshape(zero + place * self._num_chunks + chunk, [1])
                numbers = tf.gather(columns, row)
                if size == 2:
                    numbers = tf.reshape(numbers, (self._chunk, 2))
                    numbers = tf.bitcast(numbers, tf.uint16)
                numbers = tf.cast(tf.reshape(numbers, [self._chunk]), tf.int32)
                part = tf.gather(table, numbers)
                scores = part if scores is None else scores + part
            start = chunk * self._chunk
            yield scores[: self._num_rows - start]

    def _columns(self, size):
        """Codes as rows of `size` bytes of each id of a chunk."""
        if size not in self._stored:
            room = self._num_chunks * self._chunk - self._num_rows
            room = (0, room), (0, -self._packed.shape[1] % size)
            packed = np.pad(self._packed, room)
            columns = packed.reshape(self._num_chunks, self._chunk, -1, size)
            columns = np.ascontiguousarray(columns.transpose(2, 0, 1, 3))
            columns = columns.reshape(-1, self._chunk * size)
            self._stored[size] = columns
            table = StoredTable(self._codes.table.name, columns, columns)
            self._options.tables.append(table)
        return self._stored[size]


def _own_columns(folded):
    """Codebooks `(codebook_size, width)` whose columns are parts of vectors."""
    columns = np.arange(folded.shape[2])
    owners = part_of_column(len(columns), len(folded))
    shared = folded[:, 0].sum(axis=0) - folded[owners, 0, columns]
    return folded[owners, :, columns].T + shared
