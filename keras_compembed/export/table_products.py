"""Vectors of rounded tables as products of rows and a projection."""

import tensorflow as tf

from keras_compembed.export.texts_of_ids import join_weights
from keras_compembed.export.texts_of_ids import with_shape


class TableProducts:
    """Vectors of a `QuantizedEmbedding`. Features are rows, and their sums."""

    can_spread = True

    def __init__(self, lookup):
        self._rows = lookup.rows
        self._projection = lookup.projection
        self.can_fold = self._projection is not None
        self.columns = self.width = self._rows.width
        self.num_numbers = 0
        if self.can_fold:
            self.width = self._projection.shape[1]
            self.num_numbers = self._projection.size

    def folds_faster(self, width, sums=False, length=None):
        """Same as for codes."""
        return self.columns * width < (self.columns + width) * self.width

    @property
    def num_bytes(self):
        """Bytes of rows in a file."""
        return self._rows.num_bytes

    def may_sum(self, length):
        return True

    def fold(self, kernel=None):
        """The projection, times another matrix; None if there is none."""
        return self._projection if kernel is None else self._projection @ kernel

    def rows(self, ids, kernel):
        return tf.matmul(self._rows.read(ids), self._projection @ kernel)

    def spread(self, ids):
        features = self._rows.read(tf.reshape(ids, [-1]))
        shape = tf.concat([tf.shape(ids), [self.columns]], axis=0)
        return with_shape(features, shape, (*ids.shape, self.columns))

    def sums(self, ids, counts=None, weights=None, mean=False):
        flat = tf.reshape(ids, [-1])
        integers, scales = self._rows.integers(flat), self._rows.scales(flat)
        weights = join_weights(counts, weights)
        if weights is not None:
            scales *= tf.reshape(weights, [-1, 1])
        rows = self._rows.scale(integers, scales)
        shape = tf.concat([tf.shape(ids), [self.columns]], axis=0)
        rows = with_shape(rows, shape, (*ids.shape, self.columns))
        return (tf.reduce_mean if mean else tf.reduce_sum)(rows, axis=1)
