"""Vectors of codes in a LiteRT file, and sums of those of texts."""

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
from keras_compembed.litert.row_products import OneHotRows
from keras_compembed.litert.row_products import RowProducts
from keras_compembed.litert.row_products import join_weights
from keras_compembed.litert.row_products import length_of
from keras_compembed.litert.row_products import number_groups
from keras_compembed.litert.row_products import unflatten
from keras_compembed.utils.sizes import WEIGHT_BYTES

# Codewords a codebook up to which one-hot vectors are not too wide, and whose
# products take as long as one that is gathered.
_SPREAD_SIZE = 16
# Codebooks gathered at once where little memory is to be held.
_GROUP = 4
# Numbers that could be read while a codeword is found.
_GATHER = 32
# Ids of a text, where a file leaves that open.
_USUAL_LENGTH = 64
# Ids at a time: what is held of them fits into a cache.
_CHUNK = 1 << 16
# From so many ids on, and up to so many vectors, two bytes of a code are read
# as one number: half the look-ups, in tables of so many sums.
_WORD_ROWS = 1 << 16
_WORD_VECTORS = 4


class RowSums:
    """Sums of codewords, one of each codebook.

    One-hot rows times codebooks are faster for small codebooks, codewords that
    are gathered and added up for large ones, and for a single id.
    """

    def __init__(self, codewords, codes, options):
        self._codewords = np.asarray(codewords, dtype="float32")
        self._codes, self._options, self._is_read = codes, options, False
        self._num_codebooks, self._size, self._width = codewords.shape
        self._group = self._num_codebooks
        self._is_product = self._size <= (32 if options.is_int8 else 16)
        own = WEIGHT_BYTES[options.quantize] * codewords.size
        # One-hot rows would be more than 2 % of tiny tables.
        self._is_product &= 25 * self._size**2 <= own + codes.table.packed.size
        if options.optimize_for == "memory":
            # What several ops read is no longer int8 once the file is loaded.
            if not options.is_int8:
                self._group = min(_GROUP, self._group)
            held = self._group * self._width
            self._is_product &= self._num_codebooks * self._size <= held
        if self._is_product:
            self._one_hot = OneHotRows(codes, self._codewords.size, options)

    @property
    def numbers_per_row(self):
        """Numbers held for each id while rows are summed."""
        if self._is_product:
            return self._one_hot.columns + self._width
        return (self._group + 1) * self._width

    def look_up(self, ids):
        """Sums `(ids, width)` for a rank-1 int32 tensor of ids."""
        if ids.shape[0] == 1 and not self._is_read:
            # Less is read. Ids that are read later find the same codewords.
            self._is_product = False
        self._is_read = True
        if self._is_product:
            matrix = self._one_hot.matrix(self._codewords)
            rows = tf.reshape(self._one_hot(ids), (-1, len(matrix)))
            return tf.matmul(rows, self._options.note(matrix))
        matrix, places = codewords_of_ids(
            self._codewords, self._codes, ids, self._options
        )
        if self._group >= self._num_codebooks:
            return tf.reduce_sum(tf.gather(matrix, places), axis=1)
        total = None
        for start in range(0, self._num_codebooks, self._group):
            part = places[:, start : start + self._group]
            if total is not None:
                # The runtime would look up all groups before it adds one up,
                # and hold them all: each has to wait for the one before, for
                # a zero that the converter does not know.
                part += tf.minimum(tf.cast(total[:1, :1] > 0, tf.int32), 0)
            part = tf.reduce_sum(tf.gather(matrix, part), axis=1)
            total = part if total is None else total + part
        return total


def codewords_of_ids(codewords, codes, ids, options):
    """All codewords as rows, and those `(ids, num_codebooks)` of some ids."""
    num_codebooks, codebook_size, width = codewords.shape
    flat = tf.constant(options.note(codewords.reshape(-1, width)))
    first = np.arange(num_codebooks, dtype="int32") * codebook_size
    return flat, codes.read(ids) + first


class CodeProducts(RowProducts):
    """Vectors of codes whose composition is linear."""

    def __init__(self, form, options):
        self._codes, self._codewords = form.codes, form.summed
        self._options = options
        self._num_codebooks, codebook_size, self.width = form.summed.shape
        self.num_numbers = form.codewords.size
        # Of codes in a file.
        self.num_bytes = form.codes.table.packed.size
        self.can_spread = codebook_size <= _SPREAD_SIZE
        self._own_shape = form.codewords.shape
        self._composes_faster = self._own_shape != form.summed.shape
        self._size = codebook_size
        self._counts_one_by_one = (
            options.optimize_for == "memory" or not self.can_spread
        )
        self._matrix = form.summed.reshape(-1, self.width)
        if self.can_spread:
            size = form.summed.size
            self._one_hot = OneHotRows(form.codes, size, options)
            self._matrix = self._one_hot.matrix(form.summed)
        self.columns = len(self._matrix)

    def may_sum(self, length):
        is_memory = self._options.optimize_for == "memory"
        is_faster = is_memory or self._size <= self._text_limit(length)
        return is_faster and not self._composes_faster

    def _text_limit(self, length):
        """Largest codebooks read as fast as so many codewords are gathered."""
        return (6 if self._options.is_int8 else 2) * (length or _USUAL_LENGTH)

    def folds_faster(self, width, sums=False, length=None):
        # In numbers that are read: of matrices, or to gather codewords.
        gathers = self._text_limit(length) if sums else _SPREAD_SIZE
        num_codebooks, _, own_width = self._own_shape
        before, after = self._size * own_width, self._size * width
        if self._composes_faster or self._size > gathers:
            before = gathers * (own_width + _GATHER)
        if not sums and self._size > gathers:
            after = gathers * (width + _GATHER)
        return num_codebooks * (after - before) < self.width * width

    def rows(self, ids, kernel):
        sums = RowSums(self._codewords @ kernel, self._codes, self._options)
        return sums.look_up(ids)

    def spread(self, ids):
        return unflatten(self._one_hot(ids), ids, self.columns)

    def sums(self, ids, counts=None, weights=None, mean=False):
        if self._counts_one_by_one:
            return self._count(ids, counts, weights, mean)
        vectors = self._one_hot(ids, counts)
        if weights is not None:
            vectors *= tf.expand_dims(tf.expand_dims(weights, 2), 3)
        reduce = tf.reduce_mean if mean else tf.reduce_sum
        return tf.reshape(reduce(vectors, axis=1), [-1, self.columns])

    def _count(self, ids, counts, weights, mean):
        places = self._codes.read(tf.reshape(ids, [-1]))
        places += np.arange(self._num_codebooks) * self._codes.codebook_size
        groups, size = number_groups(ids)
        places += tf.expand_dims(groups * self.columns, 1)
        weights = join_weights(counts, weights)
        if weights is None:
            values = tf.fill(tf.shape(places), 1.0)
        else:
            values = tf.expand_dims(tf.reshape(weights, [-1]), 1)
            values = tf.broadcast_to(values, tf.shape(places))
        sums = tf.math.unsorted_segment_sum(
            tf.reshape(values, [-1]),
            tf.reshape(places, [-1]),
            size * self.columns,
        )
        sums = tf.reshape(sums, [-1, self.columns])
        return sums / length_of(ids) if mean else sums


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
