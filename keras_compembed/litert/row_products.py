"""Vectors as products of features of ids and a matrix."""

import abc

import tensorflow as tf


class RowProducts(abc.ABC):
    """What is added up and multiplied once where vectors meet a layer."""

    # `columns` of features, `width` of vectors, `num_numbers` of the matrix and
    # `num_bytes` of rows in a file are attributes.
    can_fold = True
    can_spread = True

    @abc.abstractmethod
    def rows(self, ids, kernel):
        """Vectors of a rank-1 tensor of ids, times a matrix."""

    @abc.abstractmethod
    def spread(self, ids):
        """Features `(texts, length, columns)` of each of some ids."""

    @abc.abstractmethod
    def sums(self, ids, counts=None, weights=None, mean=False):
        """Features `(texts, columns)` of sums of vectors."""

    def folds_faster(self, width, sums=False, length=None):
        """Whether vectors times a matrix are made faster by folding it."""
        return self.columns * width < (self.columns + width) * self.width

    def may_sum(self, length):
        """Whether to add up texts of so many ids, or None if that is open."""
        return True

    def fold(self, kernel=None):
        """The matrix `(columns, width)`, if any, times another one."""
        return self._matrix if kernel is None else self._matrix @ kernel


def unflatten(rows, ids, width):
    """Rows of ids one after another, in the shape of the ids."""
    rows = tf.reshape(rows, tf.concat([tf.shape(ids), [width]], axis=0))
    rows.set_shape(ids.shape.concatenate(width))
    return rows


def join_weights(counts, weights):
    """Weights of ids, 0 for those that do not count; None if all are one."""
    if counts is None:
        return weights
    counts = tf.cast(counts, tf.float32)
    return counts if weights is None else counts * weights


def number_groups(ids):
    """The text of each id in a row, and the number of texts."""
    size = ids.shape[0]
    if size == 1:
        return tf.zeros_like(tf.reshape(ids, [-1])), 1
    if size is None:
        size = tf.shape(ids)[0]
    groups = tf.broadcast_to(tf.expand_dims(tf.range(size), 1), tf.shape(ids))
    return tf.reshape(groups, [-1]), size


def length_of(ids):
    """Ids of each text, as a float32 number or tensor."""
    return tf.cast(
        tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1], tf.float32
    )


def count_ids(counts):
    """How many ids count, float32 `(texts, 1)`, of booleans."""
    return tf.reduce_sum(tf.cast(counts, tf.float32), axis=1, keepdims=True)
