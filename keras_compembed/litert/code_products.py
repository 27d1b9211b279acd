"""Vectors of codes in a LiteRT file, and sums of those of texts."""

import numpy as np
import tensorflow as tf

from keras_compembed.litert.one_hot_rows import OneHotRows
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
