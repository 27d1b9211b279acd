"""Vectors as products of rows of a table and a matrix."""

import numpy as np
import tensorflow as tf

from keras_compembed.export.texts_of_ids import join_weights
from keras_compembed.export.texts_of_ids import length_of
from keras_compembed.export.texts_of_ids import number_groups
from keras_compembed.export.texts_of_ids import unflatten


class RowProducts:
    """What rows have in common. Features are rows, and their sums."""

    can_spread = True

    def folds_faster(self, width, sums=False, length=None):
        """Whether vectors times a matrix are made faster by folding it."""
        return self.columns * width < (self.columns + width) * self.width

    def may_sum(self, length):
        """Whether to add up texts of so many ids, or None if that is open."""
        return True

    def fold(self, kernel=None):
        """The matrix `(columns, width)`, if any, times another one."""
        return self._matrix if kernel is None else self._matrix @ kernel


class AnchorProducts(RowProducts):
    """Vectors of an `ANTEmbedding`, by rows of T."""

    can_fold = True

    def __init__(self, lookup):
        self._lookup = lookup
        self._matrix = lookup.anchors
        if lookup.bias is not None:
            # One for each vector that is added up.
            bias = lookup.bias[None].astype("float32")
            self._matrix = np.concatenate([self._matrix, bias])
        self.columns, self.width = self._matrix.shape
        self.num_numbers = self._matrix.size
        # Of the transform in a file, about.
        self.num_bytes = lookup.rows.num_bytes

    def rows(self, ids, kernel):
        """Vectors of a rank-1 tensor of ids, times a matrix."""
        return self._lookup.folded(kernel)(ids)

    def spread(self, ids):
        """Features `(texts, length, columns)` of each of some ids."""
        flat = tf.reshape(ids, [-1])
        size = tf.size(ids) if flat.shape[0] is None else flat.shape[0]
        # One group for each id.
        groups = tf.range(size)
        features = self._lookup.weigh(flat, groups, None, size)
        if self._lookup.bias is not None:
            features = tf.pad(features, [[0, 0], [0, 1]], constant_values=1.0)
        return unflatten(features, ids, self.columns)

    def sums(self, ids, counts=None, weights=None, mean=False):
        """Features `(texts, columns)` of sums of vectors."""
        groups, size = number_groups(ids)
        weights = join_weights(counts, weights)
        flat = None if weights is None else tf.reshape(weights, [-1])
        sums = self._lookup.weigh(tf.reshape(ids, [-1]), groups, flat, size)
        if self._lookup.bias is not None:
            if weights is None:
                total = tf.ones_like(sums[:, :1]) * length_of(ids)
            else:
                total = tf.reduce_sum(weights, axis=1, keepdims=True)
            sums = tf.concat([sums, total], axis=1)
        return sums / length_of(ids) if mean else sums


class TableProducts(RowProducts):
    """Vectors of a `QuantizedEmbedding`, by its rows and a projection."""

    def __init__(self, lookup):
        self._rows = lookup.rows
        self._matrix = lookup.projection
        self.can_fold = self._matrix is not None
        self.columns = self.width = self._rows.width
        self.num_numbers = 0
        if self.can_fold:
            self.width = self._matrix.shape[1]
            self.num_numbers = self._matrix.size
        self.num_bytes = self._rows.num_bytes

    def rows(self, ids, kernel):
        """Same as for anchors."""
        return tf.matmul(self._rows.read(ids), self.fold(kernel))

    def spread(self, ids):
        """Same as for anchors."""
        features = self._rows.read(tf.reshape(ids, [-1]))
        return unflatten(features, ids, self.columns)

    def sums(self, ids, counts=None, weights=None, mean=False):
        """Same as for anchors."""
        flat = tf.reshape(ids, [-1])
        integers, scales = self._rows.integers(flat), self._rows.scales(flat)
        weights = join_weights(counts, weights)
        if weights is not None:
            scales *= tf.reshape(weights, [-1, 1])
        rows = unflatten(self._rows.scale(integers, scales), ids, self.columns)
        return (tf.reduce_mean if mean else tf.reduce_sum)(rows, axis=1)
