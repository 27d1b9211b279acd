"""Vectors of codes as products of counts and a matrix."""

import numpy as np
import tensorflow as tf

from keras_compembed.export.one_hot_rows import UNPACK_RUNTIME
from keras_compembed.export.one_hot_rows import OneHotRows
from keras_compembed.export.one_hot_rows import one_hot_bytes
from keras_compembed.export.row_costs import ASSUMED_IDS
from keras_compembed.export.row_costs import NUMBER_BYTES
from keras_compembed.export.row_costs import estimate_counts
from keras_compembed.export.row_costs import estimate_product
from keras_compembed.export.row_costs import estimate_sum
from keras_compembed.export.row_graphs import Gathers
from keras_compembed.export.row_sums import SIZE_MARGINS
from keras_compembed.export.row_sums import RowSums
from keras_compembed.export.texts_of_ids import join_weights
from keras_compembed.export.texts_of_ids import length_of
from keras_compembed.export.texts_of_ids import number_groups
from keras_compembed.export.texts_of_ids import unflatten

# Up to so many codewords a codebook, one-hot vectors are not too wide.
_SPREAD_SIZE = 16
# Bytes in a file of the ops that count subcodes one by one, and of those that
# make one-hot vectors of them.
_COUNT_BYTES, _SPREAD_BYTES = 2350, 0


class CodeProducts:
    """Vectors of a `CodeEmbedding` whose composition is linear."""

    can_fold = True

    def __init__(self, lookup, options):
        codes, codewords = lookup.codes, lookup.summed
        self._codes, self._codewords = codes, codewords
        self._options = options
        self.width = codewords.shape[-1]
        self.num_numbers = lookup.codewords.size
        self._own_shape = lookup.codewords.shape
        self.composes_faster = lookup.codewords.shape != codewords.shape
        self._rows = RowSums(codewords, options, codes)
        self._one_hot = None
        self.counts_bytes = self._fits(_COUNT_BYTES)
        self._spreads_bytes = self._fits(_SPREAD_BYTES)
        if self.counts_bytes:
            self._one_hot = OneHotRows(
                codes.codebook_size, codes.per_byte, options
            )
            spare = codes.per_byte * codes.table.packed.shape[1]
            spare -= len(codewords)
            padding = np.zeros((spare, *codewords.shape[1:]), "float32")
            codewords = np.concatenate([codewords, padding])
        self._matrix = codewords.reshape(-1, self.width)
        self.columns = len(self._matrix)

    def _fits(self, op_bytes):
        """Whether a table of one-hot rows of bytes is worth its space."""
        codes, goal = self._codes, self._options.optimize_for
        if codes.per_byte == 1 or not self._options.serves(UNPACK_RUNTIME):
            return False
        if goal == "latency":
            return True
        if goal == "memory":
            return False
        added = one_hot_bytes(codes.codebook_size, codes.per_byte)
        # Without, the file has the digits of each byte, and where the
        # codewords of each codebook begin.
        added -= op_bytes + 256 * codes.per_byte + 4 * codes.num_codebooks
        number = NUMBER_BYTES[self._options.quantize]
        own = codes.table.packed.size + number * self._codewords.size
        return added <= (SIZE_MARGINS[goal] - 1) * own

    @property
    def can_spread(self):
        return self._codewords.shape[1] <= _SPREAD_SIZE

    @property
    def num_bytes(self):
        """Bytes of codes in a file."""
        return self._codes.table.packed.size

    def may_sum(self, length):
        """Whether to add up texts of so many ids, or None if that is open."""
        if self.composes_faster:
            return False
        counts = self._count_costs(self.width, length)
        rows = self._rows.sum_costs(length)
        if self._options.optimize_for == "memory":
            return counts.arena_bytes <= rows.arena_bytes
        return counts.nanoseconds <= rows.nanoseconds

    def folds_faster(self, width, sums=False, length=None):
        """Whether vectors times a matrix are made faster by folding it."""
        if not sums:
            after = self._row_cost(width)
            return after < self._row_cost(self.width) + self.width * width
        quantize = self._options.quantize
        before = estimate_product((self.width, width), quantize)
        if self.may_sum(length):
            before += self._count_costs(self.width, length).nanoseconds
        elif self.composes_faster:
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
        if self.composes_faster and width == self.width:
            return width
        return num_codebooks * width * min(codebook_size, 16)

    def _count_costs(self, width, length):
        codes = self._codes
        way, together = ("bytes" if codes.is_aligned else "bits"), 1
        if self.counts_bytes:
            way, together = "one-hot", codes.per_byte
        return estimate_counts(
            (*self._codewords.shape[:2], width),
            length or ASSUMED_IDS,
            self._options.quantize,
            way,
            together,
        )

    def fold(self, kernel=None):
        """The matrix `(columns, width)`, times another one."""
        return self._matrix if kernel is None else self._matrix @ kernel

    def rows(self, ids, kernel):
        """Vectors of a rank-1 tensor of ids, times a matrix."""
        codewords = self._codewords @ kernel
        return RowSums(codewords, self._options, self._codes).look_up(ids)

    def spread(self, ids):
        """Features `(texts, length, columns)` of each of some ids."""
        if self._spreads_bytes:
            vectors = self._one_hot(self._read_bytes(ids))
        else:
            subcodes = self._codes.read(tf.reshape(ids, [-1]))
            num_codebooks, codebook_size, _ = self._codewords.shape
            vectors = tf.one_hot(subcodes, codebook_size)
            spare = self.columns // codebook_size - num_codebooks
            if spare:
                vectors = tf.pad(vectors, [[0, 0], [0, spare], [0, 0]])
        return unflatten(vectors, ids, self.columns)

    def sums(self, ids, counts=None, weights=None, mean=False):
        """Features `(texts, columns)` of sums of vectors."""
        if not self.counts_bytes:
            return self._count(ids, counts, weights, mean)
        stored = self._read_bytes(ids)
        if counts is not None:
            counts = tf.expand_dims(counts, 2)
            stored = tf.where(counts, stored, self._one_hot.zeros)
        vectors = self._one_hot(stored)
        if weights is not None:
            vectors *= tf.expand_dims(tf.expand_dims(weights, 2), 3)
        reduce = tf.reduce_mean if mean else tf.reduce_sum
        return tf.reshape(reduce(vectors, axis=1), [-1, self.columns])

    def _read_bytes(self, ids):
        # Ids of any rank, which need no new shape then.
        return self._codes.read(ids, self._codes.per_byte)

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
