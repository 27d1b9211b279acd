"""Vectors of codes as products of counts and a matrix."""

import numpy as np
import tensorflow as tf

from keras_compembed.litert.one_hot_rows import UNPACK_RUNTIME
from keras_compembed.litert.one_hot_rows import OneHotRows
from keras_compembed.litert.one_hot_rows import one_hot_bytes
from keras_compembed.litert.row_costs import ASSUMED_IDS
from keras_compembed.litert.row_costs import NUMBER_BYTES
from keras_compembed.litert.row_costs import estimate_counts
from keras_compembed.litert.row_costs import estimate_product
from keras_compembed.litert.row_costs import estimate_sum
from keras_compembed.litert.row_graphs import Gathers
from keras_compembed.litert.row_products import RowProducts
from keras_compembed.litert.row_sums import SIZE_MARGINS
from keras_compembed.litert.row_sums import RowSums
from keras_compembed.litert.texts_of_ids import join_weights
from keras_compembed.litert.texts_of_ids import length_of
from keras_compembed.litert.texts_of_ids import number_groups
from keras_compembed.litert.texts_of_ids import unflatten

# Up to so many codewords a codebook, one-hot vectors are not too wide.
_SPREAD_SIZE = 16
# Bytes in a file of the ops that count subcodes one by one, and of those that
# make one-hot vectors of them.
_COUNT_BYTES, _SPREAD_BYTES = 2350, 0


class CodeProducts(RowProducts):
    """Vectors of codes whose composition is linear."""

    def __init__(self, form, options):
        codes, codewords = form.codes, form.summed
        self._codes, self._codewords = codes, codewords
        self._options = options
        self.width = codewords.shape[-1]
        self.num_numbers = form.codewords.size
        # Of codes in a file.
        self.num_bytes = codes.table.packed.size
        self.can_spread = codewords.shape[1] <= _SPREAD_SIZE
        self._own_shape = form.codewords.shape
        self._composes_faster = self._own_shape != codewords.shape
        self._rows = RowSums(codewords, options, codes)
        self._counts_bytes = self._fits(_COUNT_BYTES)
        self._spreads_bytes = self._fits(_SPREAD_BYTES)
        if self._counts_bytes:
            self._one_hot = OneHotRows(
                codes.codebook_size, codes.per_byte, options
            )
            spare = codes.per_byte * codes.table.packed.shape[1]
            spare -= len(codewords)
            codewords = np.pad(codewords, ((0, spare), (0, 0), (0, 0)))
        self._matrix = codewords.reshape(-1, self.width)
        self.columns = len(self._matrix)

    def _fits(self, op_bytes):
        """Whether a table of one-hot rows of bytes is worth its space."""
        codes, goal = self._codes, self._options.optimize_for
        if codes.per_byte == 1 or not self._options.serves(UNPACK_RUNTIME):
            return False
        if goal in ("latency", "memory"):
            return goal == "latency"
        added = one_hot_bytes(codes.codebook_size, codes.per_byte)
        # Without, the file has the digits of each byte, and where the
        # codewords of each codebook begin.
        added -= op_bytes + 256 * codes.per_byte + 4 * codes.num_codebooks
        number = NUMBER_BYTES[self._options.quantize]
        own = self.num_bytes + number * self._codewords.size
        return added <= (SIZE_MARGINS[goal] - 1) * own

    def may_sum(self, length):
        if self._composes_faster:
            return False
        counts = self._count_costs(self.width, length)
        rows = self._rows.sum_costs(length)
        if self._options.optimize_for == "memory":
            return counts.arena_bytes <= rows.arena_bytes
        return counts.nanoseconds <= rows.nanoseconds

    def folds_faster(self, width, sums=False, length=None):
        if not sums:
            after = self._row_cost(width)
            return after < self._row_cost(self.width) + self.width * width
        quantize = self._options.quantize
        before = estimate_product((self.width, width), quantize)
        if self.may_sum(length):
            before += self._count_costs(self.width, length).nanoseconds
        elif self._composes_faster:
            # Of a text of rows that are made of smaller codewords.
            shape, num_ids = self._own_shape, length or ASSUMED_IDS
            graph = Gathers(1, shape[0])
            before += estimate_sum(graph, shape, num_ids, quantize).nanoseconds
        else:
            before += self._rows.sum_costs(length).nanoseconds
        return self._count_costs(width, length).nanoseconds < before

    def _row_cost(self, width):
        """About the products that it takes to compose a row of a width."""
        num_codebooks, codebook_size, _ = self._codewords.shape
        if self._composes_faster and width == self.width:
            return width
        return num_codebooks * width * min(codebook_size, 16)

    def _count_costs(self, width, length):
        codes = self._codes
        way, together = ("bytes" if codes.is_aligned else "bits"), 1
        if self._counts_bytes:
            way, together = "one-hot", codes.per_byte
        return estimate_counts(
            (*self._codewords.shape[:2], width),
            length or ASSUMED_IDS,
            self._options.quantize,
            way,
            together,
        )

    def rows(self, ids, kernel):
        codewords = self._codewords @ kernel
        return RowSums(codewords, self._options, self._codes).look_up(ids)

    def spread(self, ids):
        if self._spreads_bytes:
            vectors = self._one_hot(self._codes.read(ids, self._codes.per_byte))
        else:
            subcodes = self._codes.read(tf.reshape(ids, [-1]))
            num_codebooks, codebook_size, _ = self._codewords.shape
            vectors = tf.one_hot(subcodes, codebook_size)
            spare = self.columns // codebook_size - num_codebooks
            if spare:
                vectors = tf.pad(vectors, [[0, 0], [0, spare], [0, 0]])
        return unflatten(vectors, ids, self.columns)

    def sums(self, ids, counts=None, weights=None, mean=False):
        if not self._counts_bytes:
            return self._count(ids, counts, weights, mean)
        stored = self._codes.read(ids, self._codes.per_byte)
        if counts is not None:
            counts = tf.expand_dims(counts, 2)
            stored = tf.where(counts, stored, self._one_hot.zeros)
        vectors = self._one_hot(stored)
        if weights is not None:
            vectors *= tf.expand_dims(tf.expand_dims(weights, 2), 3)
        reduce = tf.reduce_mean if mean else tf.reduce_sum
        return tf.reshape(reduce(vectors, axis=1), [-1, self.columns])

    def _count(self, ids, counts, weights, mean):
        subcodes = self._codes.read(tf.reshape(ids, [-1]))
        num_codebooks, codebook_size, _ = self._codewords.shape
        places = subcodes + np.arange(num_codebooks) * codebook_size
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
