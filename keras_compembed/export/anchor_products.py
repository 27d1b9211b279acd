"""Vectors of anchors as products of rows of T and a matrix."""

import numpy as np
import tensorflow as tf

from keras_compembed.export.texts_of_ids import join_weights
from keras_compembed.export.texts_of_ids import length_of
from keras_compembed.export.texts_of_ids import number_groups
from keras_compembed.export.texts_of_ids import with_shape


class AnchorProducts:
    """Vectors of an `ANTEmbedding`. Features are rows of T, and their sums."""

    can_fold = can_spread = True

    def __init__(self, lookup):
        self._lookup = lookup
        self._matrix = lookup.anchors
        if lookup.bias is not None:
            # One for each vector that is added up.
            bias = lookup.bias[None].astype("float32")
            self._matrix = np.concatenate([self._matrix, bias])
        self.columns, self.width = self._matrix.shape
        self.num_numbers = self._matrix.size

    def folds_faster(self, width, sums=False, length=None):
        """Same as for codes."""
        return self.columns * width < (self.columns + width) * self.width

    @property
    def num_bytes(self):
        """Bytes of the transform in a file, about."""
        return self._lookup.rows.num_bytes

    def may_sum(self, length):
        return True

    def fold(self, kernel=None):
        return self._matrix if kernel is None else self._matrix @ kernel

    def rows(self, ids, kernel):
        return self._lookup.folded(kernel)(ids)

    def spread(self, ids):
        flat = tf.reshape(ids, [-1])
        size = tf.size(ids) if flat.shape[0] is None else flat.shape[0]
        # One group for each id.
        groups = tf.range(size)
        features = self._lookup.weigh(flat, groups, None, size)
        if self._lookup.bias is not None:
            features = tf.pad(features, [[0, 0], [0, 1]], constant_values=1.0)
        shape = tf.concat([tf.shape(ids), [self.columns]], axis=0)
        return with_shape(features, shape, (*ids.shape, self.columns))

    def sums(self, ids, counts=None, weights=None, mean=False):
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
