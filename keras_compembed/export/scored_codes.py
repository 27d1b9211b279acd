"""How all ids are scored from their codes in a LiteRT file."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.code_scores import join_tables
from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import pack_codes
from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.concat_composition import part_of_column
from keras_compembed.export.flatbuffer import StoredTable
from keras_compembed.export.row_chunks import chunks_of_ids
from keras_compembed.export.row_chunks import unknown_zero

# Ids at a time: what is held of them fits into a cache.
_CHUNK = 1 << 16
# From so many ids on, and up to so many vectors, two bytes of a code are read
# as one number: half the look-ups, in tables of so many sums.
_WORD_ROWS = 1 << 16
_WORD_VECTORS = 4


class ScoredCodes:
    """Scores all ids by sums of what their subcodes give to a score."""

    def __init__(self, layer, codes, codebooks, options):
        self._layer = layer
        self._options = options
        self._codes = codes
        self._num_rows = layer.input_dim
        composition = layer.composition
        self._is_concat = isinstance(composition.unscaled(), ConcatComposition)
        self._codebooks = composition.fold(codebooks).numpy()
        if self._is_concat:
            self._codebooks = _own_columns(self._codebooks)
        self._bits = bits_per_subcode(layer.codebook_size)
        self._packed = pack_codes(layer.codes, layer.codebook_size)
        self._stored = {}
        self.tables = []
        # Of a single chunk, the converter swaps the transposition with what
        # comes after, and marks would be found before it.
        self._num_chunks = max(2, -(-self._num_rows // _CHUNK))
        self._num_chunks = min(self._num_rows, self._num_chunks)
        self._chunk = -(-self._num_rows // self._num_chunks)

    def chunks(self, vectors, is_looked_up):
        """Yields scores `(vectors, ids)` of all ids, chunk by chunk."""
        tables = self._sub_scores(vectors)
        if is_looked_up or 8 % self._bits:
            chunks = self._by_rows(vectors, tables)
        else:
            chunks = self._by_columns(vectors, tables)
        for scores in chunks:
            yield tf.transpose(scores)

    def _sub_scores(self, vectors):
        """Products with codewords `(num_codebooks, codebook_size, vectors)`."""
        layer = self._layer
        shape = layer.num_codebooks, layer.codebook_size, tf.shape(vectors)[0]
        if self._is_concat:
            owners = part_of_column(layer.output_dim, shape[0])
            ends = np.cumsum(np.bincount(owners))
            parts = np.split(self._codebooks, ends[:-1], axis=1)
            products = [
                self._multiply(vectors[:, end - part.shape[1] : end], part)
                for end, part in zip(ends, parts, strict=True)
            ]
            products = tf.concat(products, axis=1)
        else:
            flat = self._codebooks.reshape(-1, layer.output_dim)
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
        for ids in chunks_of_ids(vectors, self._num_rows, self._chunk):
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
            name = f"{self._layer.path}/codes"
            table = StoredTable(name, columns, columns)
            self.tables.append(table)
        return self._stored[size]


def _own_columns(folded):
    """Codebooks `(codebook_size, width)` whose columns are parts of vectors."""
    columns = np.arange(folded.shape[2])
    owners = part_of_column(len(columns), len(folded))
    shared = folded[:, 0].sum(axis=0) - folded[owners, 0, columns]
    return folded[owners, :, columns].T + shared
