"""Codes and codebooks in a LiteRT file: rows, sums and scores."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import join_tables
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.composition import part_of_column
from keras_compembed.litert.flatbuffer import StoredTable
from keras_compembed.litert.litert_form import FLOAT32
from keras_compembed.litert.litert_form import LEAST
from keras_compembed.litert.litert_form import ROUNDING
from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.litert.litert_form import OneHotRows
from keras_compembed.litert.litert_form import RowChunks
from keras_compembed.litert.litert_form import join_weights
from keras_compembed.litert.litert_form import length_of
from keras_compembed.litert.litert_form import number_groups
from keras_compembed.litert.litert_form import unflatten
from keras_compembed.litert.litert_form import unknown_zero
from keras_compembed.utils.files import WEIGHT_BYTES

# Up to this codebook size, products with one-hot vectors are as fast as a
# gather.
_SPREAD_SIZE = 16
# Codebooks to gather at once if memory is to be saved.
_GROUP = 4
# Cost of gathering a codeword, in numbers read.
_GATHER = 32
# Assumed ids of a text, if the length is open.
_TEXT_LENGTH = 64
# Elements of codewords composed at once.
_COMPOSED = 1 << 22
# If not all rows are compared, at least this number, spread over the table.
_SPREAD = 1024
# Ids at a time; their data fits in a cache.
_CHUNK = 1 << 16
# From this number of ids, and up to this number of vectors, two bytes of a code
# are read as one number: half the lookups, in larger tables of sums.
_WORD_ROWS = 1 << 16
_WORD_VECTORS = 4


class RowSums:
    """Sums of codewords: one-hot rows times codebooks, or gathered ones."""

    def __init__(self, codewords, codes, options):
        self._codewords = np.asarray(codewords, dtype="float32")
        self._codes, self._options, self._is_read = codes, options, False
        self._num_codebooks, self._size, self._width = codewords.shape
        self._group = self._num_codebooks
        self._is_product = self._size <= (32 if options.is_int8 else 16)
        own = WEIGHT_BYTES[options.quantize] * codewords.size
        # For tiny tables, one-hot rows would add more than 2 %.
        self._is_product &= 25 * self._size**2 <= own + codes.table.content.size
        if options.optimize_for == "memory":
            # The runtime makes int8 that several ops read float again.
            if not options.is_int8:
                self._group = min(_GROUP, self._group)
            held = self._group * self._width
            self._is_product &= self._num_codebooks * self._size <= held
        if self._is_product:
            self._one_hot = OneHotRows(codes, self._codewords.size, options)

    @property
    def numbers_per_row(self):
        """Elements in memory for each id while rows are summed."""
        if self._is_product:
            return self._one_hot.columns + self._width
        return (self._group + 1) * self._width

    def look_up(self, ids):
        """Sums `(ids, width)` for a rank-1 int32 tensor of ids."""
        if ids.shape[0] == 1 and not self._is_read:
            # Gathering reads less. Later lookups share the codewords.
            self._is_product = False
        self._is_read = True
        if self._is_product:
            matrix = self._one_hot.matrix(self._codewords)
            rows = tf.reshape(self._one_hot(ids), (-1, len(matrix)))
            return self._options.product(rows, matrix)
        gather, places = codewords_of_ids(
            self._codewords, self._codes, ids, self._options
        )
        if self._group >= self._num_codebooks:
            return tf.reduce_sum(gather(places), axis=1)
        total = None
        for start in range(0, self._num_codebooks, self._group):
            part = places[:, start : start + self._group]
            if total is not None:
                # The runtime would gather all groups before the first sum. To
                # save memory, each group waits for the one before, by adding
                # a zero that the converter cannot fold.
                part += tf.minimum(tf.cast(total[:1, :1] > 0, tf.int32), 0)
            part = tf.reduce_sum(gather(part), axis=1)
            total = part if total is None else total + part
        return total


def codewords_of_ids(codewords, codes, ids, options):
    """A function that gathers rows, and their numbers for each id."""
    num_codebooks, codebook_size, width = codewords.shape
    gather = options.gatherer(codewords.reshape(-1, width))
    first = np.arange(num_codebooks, dtype="int32") * codebook_size
    return gather, codes.read(ids) + first


class StoredCodes:
    """The codes of a store in a file, and ops that read them."""

    def __init__(self, store, path):
        self.num_codebooks = store.num_codebooks
        self.codebook_size = store.codebook_size
        self.bits = bits_per_subcode(self.codebook_size)
        self.per_byte = 1 if 8 % self.bits else 8 // self.bits
        packed = store.packed()
        self.table = StoredTable(f"{path}/codes", packed)

    def read(self, ids, together=1):
        """Subcodes, int32 `(ids, num_codebooks)`, of a rank-1 tensor of ids."""
        # Plain bytes, for ids of any rank.
        rows = tf.gather(self.table.content, ids)
        if together > 1:
            return tf.cast(rows, tf.int32)
        return unpack_rows(rows, self.num_codebooks, self.codebook_size)


class ScoredCodes:
    """Scores all ids by sums over their subcodes."""

    def __init__(self, store, codes, codebooks, options):
        self._options = options
        self._codes, self._bits = codes, codes.bits
        self._packed = codes.table.content
        self._num_rows, self._width = store.input_dim, store.output_dim
        composition = store.composition.unscaled()
        self._is_concat = isinstance(composition, ConcatComposition)
        self._codebooks = codebooks
        if self._is_concat:
            self._codebooks = _own_columns(codebooks)
        self._stored = {}
        # At least 2: with a single chunk, the converter moves the transposition
        # behind other ops, and the marks are misplaced.
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
        """Scores from the codes that lookups read."""
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
        """Scores from a separate copy of the codes."""
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
        """Codes as rows: `size` bytes of each id of a chunk."""
        if size not in self._stored:
            room = self._num_chunks * self._chunk - self._num_rows
            room = (0, room), (0, -self._packed.shape[1] % size)
            packed = np.pad(self._packed, room)
            columns = packed.reshape(self._num_chunks, self._chunk, -1, size)
            columns = np.ascontiguousarray(columns.transpose(2, 0, 1, 3))
            columns = columns.reshape(-1, self._chunk * size)
            self._stored[size] = columns
            table = StoredTable(self._codes.table.name, columns)
            self._options.tables.append(table)
        return self._stored[size]


def _own_columns(folded):
    """Codebooks `(codebook_size, width)` with parts of vectors as columns."""
    columns = np.arange(folded.shape[2])
    owners = part_of_column(len(columns), len(folded))
    shared = folded[:, 0].sum(axis=0) - folded[owners, 0, columns]
    return folded[owners, :, columns].T + shared


class CodesForm(LiteRTForm):
    """Codes and codewords in a LiteRT file."""

    def __init__(self, store, options, path):
        super().__init__(store, options)
        self._composition = composition = store.composition
        codebooks = tf.cast(store.codebooks.value, tf.float32)
        folded = composition.fold(codebooks)
        # Codewords that sum to a vector, or None.
        self.summed = None if folded is None else folded.numpy()
        # Parts of vectors, scaled or not, would need padding for a sum.
        is_sum = folded is not None and not isinstance(
            composition.unscaled(), ConcatComposition
        )
        if isinstance(composition, LinearComposition):
            # Keep the matrix if codebooks would grow by more.
            saved = composition.kernel.shape.num_elements()
            saved += codebooks.shape.num_elements()
            is_sum = folded.shape.num_elements() <= saved
        self.codes = StoredCodes(store, path)
        options.tables.append(self.codes.table)
        self.scores = self._sums = None
        if composition.is_linear:
            self.scores = ScoredCodes(store, self.codes, self.summed, options)
        if is_sum:
            self.codewords = self.summed
            self._sums = RowSums(self.codewords, self.codes, options)
            row_elements = self._sums.numbers_per_row
        else:
            self.codewords = composition.codewords(codebooks).numpy()
            num_codebooks, _, width = self.codewords.shape
            row_elements = 4 * num_codebooks * width
        self.chunks = RowChunks(store.input_dim, row_elements, _COMPOSED)
        self.has_features = self.can_fold = self.summed is not None
        if self.has_features:
            self._prepare_features()

    def _prepare_features(self):
        self.num_numbers = self.codewords.size
        self.num_bytes = self.codes.table.content.size
        self.can_spread = self.codes.codebook_size <= _SPREAD_SIZE
        self._composes_faster = self.codewords.shape != self.summed.shape
        self.matrix = self.summed.reshape(-1, self.store.output_dim)
        if self.can_spread:
            size = self.summed.size
            self._one_hot = OneHotRows(self.codes, size, self._options)
            self.matrix = self._one_hot.matrix(self.summed)
        self.columns = len(self.matrix)

    def sums_faster(self, length):
        is_faster = self._options.optimize_for == "memory" or (
            self.codes.codebook_size <= self._text_limit(length)
        )
        return is_faster and not self._composes_faster

    def _text_limit(self, length):
        """Largest codebook size with products as fast as `length` gathers."""
        return (6 if self._options.is_int8 else 2) * (length or _TEXT_LENGTH)

    def folds_faster(self, width, sums=False, length=None):
        # Cost in numbers read: of matrices, or to gather codewords.
        gathers = self._text_limit(length) if sums else _SPREAD_SIZE
        size = self.codes.codebook_size
        num_codebooks, _, own_width = self.codewords.shape
        before, after = size * own_width, size * width
        if self._composes_faster or size > gathers:
            before = gathers * (own_width + _GATHER)
        if not sums and size > gathers:
            after = gathers * (width + _GATHER)
        return num_codebooks * (after - before) < self.store.output_dim * width

    def folded_rows(self, ids):
        codewords = self.summed @ self.kernel
        return RowSums(codewords, self.codes, self._options).look_up(ids)

    def features(self, ids):
        return unflatten(self._one_hot(ids), ids, self.columns)

    def feature_sums(self, ids, counts, weights, mean):
        if self._options.optimize_for == "memory" or not self.can_spread:
            return self._count(ids, counts, weights, mean)
        vectors = self._one_hot(ids, counts)
        if weights is not None:
            vectors *= tf.expand_dims(tf.expand_dims(weights, 2), 3)
        reduce = tf.reduce_mean if mean else tf.reduce_sum
        return tf.reshape(reduce(vectors, axis=1), [-1, self.columns])

    def _count(self, ids, counts, weights, mean):
        """Sums of features, codeword by codeword."""
        codes = self.codes
        places = codes.read(tf.reshape(ids, [-1]))
        places += np.arange(codes.num_codebooks) * codes.codebook_size
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

    def look_up(self, ids):
        if self._sums is not None:
            return self._sums.look_up(ids)
        gather, places = codewords_of_ids(
            self.codewords, self.codes, ids, self._options
        )
        return self._composition(gather(places))

    def score_chunks(self, vectors):
        vectors = tf.cast(vectors, tf.float32)
        # As in `Codes.score`; most files run for few vectors.
        is_few = (vectors.shape[0] or 1) <= vectors.shape[1]
        if self.scores is not None and is_few:
            yield from self.scores.chunks(vectors, self.is_read)
            return
        for ids in self.chunks.ids(vectors):
            yield tf.matmul(vectors, self.read(ids), transpose_b=True)

    def ids_to_compare(self):
        every = super().ids_to_compare()
        if not self._composition.is_slow:
            return every
        chosen = [every[:: max(1, len(every) // _SPREAD)]]
        for subcodes in self.store.codes.T:
            chosen.append(np.unique(subcodes, return_index=True)[1])
        return np.unique(np.concatenate(chosen)).astype("int32")

    def tolerance(self, quantize, largest):
        composition = self._composition
        if self.summed is None or isinstance(
            composition.unscaled(), LinearComposition
        ):
            return super().tolerance(quantize, largest)
        # A `ScaledComposition` gives each part an offset.
        is_plain = isinstance(composition, ConcatComposition)
        terms = 1 if is_plain else composition.num_codebooks + 1
        finite = self.summed[np.isfinite(self.summed)]
        most = float(np.abs(finite).max(initial=0))
        rounding = ROUNDING[quantize] + (terms + 1) * FLOAT32
        return terms * (most * rounding + LEAST)
