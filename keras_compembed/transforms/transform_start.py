"""Initial numbers of a transform."""

import functools
import random

import numpy as np
import tensorflow as tf

# Numbers in a row at the start, and the largest of them.
_START_NONZEROS = 4
_START_VALUE = 0.1


class TransformStart:
    """Initializers of T: of all of it, or of numbers and their columns."""

    def __init__(self, anchor_ids, non_negative=True, initializer=None):
        self.anchor_ids = anchor_ids
        self.non_negative = non_negative
        self.initializer = initializer

    def table(self, shape, dtype=None):
        """All of T, dense."""
        if self.initializer is None:
            num_rows, num_anchors = shape
            places = num_rows, min(_START_NONZEROS, num_anchors)
            table = np.zeros(shape)
            np.put_along_axis(
                table, self.columns(places), self.values(places), axis=1
            )
        else:
            # Keras may build layers in a graph, where there are no numbers.
            with tf.init_scope():
                table = np.array(self.initializer(shape, dtype=dtype))
            if self.non_negative:
                table = np.maximum(table, 0)
            rows, columns = one_hot_rows(self.anchor_ids)
            table[rows] = 0
            table[rows, columns] = 1
        return tf.convert_to_tensor(table, dtype=dtype)

    def values(self, shape, dtype=None):
        """The numbers in places of rows, `(rows, places)`."""
        rng = np.random.default_rng(self._seed + 1)
        low = 0 if self.non_negative else -_START_VALUE
        values = rng.uniform(low, _START_VALUE, shape)
        values[:, _START_NONZEROS:] = 0
        rows, _ = one_hot_rows(self.anchor_ids)
        values[rows] = 0
        values[rows, 0] = 1
        return values.astype(dtype or "float64")

    def columns(self, shape, dtype="int32"):
        """The columns of the places of `values`, different ones in a row."""
        num_rows, places = shape
        num_anchors = len(self.anchor_ids)
        rng = np.random.default_rng(self._seed)
        first = rng.integers(num_anchors, size=(num_rows, 1))
        rows, columns = one_hot_rows(self.anchor_ids)
        first[rows, 0] = columns
        stride = num_anchors // places
        columns = (first + stride * np.arange(places)) % num_anchors
        return columns.astype(dtype)

    @functools.cached_property
    def _seed(self):
        """One for values and columns alike."""
        return random.getrandbits(31)


def one_hot_rows(anchor_ids):
    """Where objects that are anchors have their 1, as `(ids, columns)`."""
    ids, columns = np.unique(anchor_ids, return_index=True)
    return ids[ids >= 0], columns[ids >= 0]
