"""Vectors of codes as products of counts and a matrix."""

import numpy as np
import tensorflow as tf

from keras_compembed.litert.one_hot_rows import OneHotRows
from keras_compembed.litert.row_products import RowProducts
from keras_compembed.litert.row_products import join_weights
from keras_compembed.litert.row_products import length_of
from keras_compembed.litert.row_products import number_groups
from keras_compembed.litert.row_products import unflatten
from keras_compembed.litert.row_sums import RowSums

# Codewords a codebook up to which one-hot vectors are not too wide, and whose
# products take as long as one that is gathered.
_SPREAD_SIZE = 16
# Ids of a text, where a file leaves that open.
_USUAL_LENGTH = 64


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
        # In numbers of matrices that are read.
        gathers = self._text_limit(length) if sums else _SPREAD_SIZE
        size = min(self._size, gathers)
        before = gathers if self._composes_faster else size
        num_codebooks, _, own_width = self._own_shape
        before = before * num_codebooks * own_width + self.width * width
        return (self._size if sums else size) * num_codebooks * width < before

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
