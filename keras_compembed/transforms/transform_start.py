"""Where training of a transform starts."""

import random

import keras
import numpy as np
import tensorflow as tf

# Numbers in a row at the start, and the largest of them.
_START_NONZEROS = 4
_START_VALUE = 0.1


class TransformStart:
    """Initializers of T: of all of it, or of numbers and their columns.

    Rows have up to 4 random numbers; those of objects that are anchors have a
    single 1, in the column of their anchor.

    Args:
        anchor_ids: Integer array `(num_anchors,)`, the object that each
            anchor stands for, -1 for none.
        non_negative: Boolean. Whether no number may be below 0. Defaults to
            `True`.
        initializer: Optional initializer of the rows of all other objects, as
            `keras.initializers.get` takes it, for `table` alone.
        seed: Optional integer. Defaults to one drawn when first needed.

    Attributes:
        seed: Integer, or None if none was needed yet.
        initializer: Keras initializer, or None.
    """

    def __init__(
        self, anchor_ids, non_negative=True, initializer=None, seed=None
    ):
        self.anchor_ids = np.asarray(anchor_ids)
        self.non_negative = non_negative
        self.initializer = keras.initializers.get(initializer)
        self.seed = seed

    def table(self, shape, dtype=None):
        """All of T, dense."""
        if self.initializer is None:
            values = self.values(
                (shape[0], min(_START_NONZEROS, shape[1])), dtype
            )
            columns = self.columns(values.shape)
            table = np.zeros(shape, values.numpy().dtype)
            np.put_along_axis(table, columns.numpy(), values.numpy(), axis=1)
        else:
            table = self.initializer(shape, dtype=dtype)
            table = np.array(
                tf.maximum(table, 0) if self.non_negative else table
            )
            rows, columns = one_hot_rows(self.anchor_ids)
            table[rows] = 0
            table[rows, columns] = 1
        return tf.convert_to_tensor(table, dtype=dtype)

    def values(self, shape, dtype=None):
        """The numbers in places of rows, `(rows, places)`."""
        rng = np.random.default_rng(self._drawn_seed() + 1)
        low = 0 if self.non_negative else -_START_VALUE
        values = rng.uniform(low, _START_VALUE, shape)
        values[:, _START_NONZEROS:] = 0
        rows, _ = one_hot_rows(self.anchor_ids)
        values[rows] = 0
        values[rows, 0] = 1
        return tf.convert_to_tensor(values, dtype=dtype)

    def columns(self, shape, dtype="int32"):
        """The columns of the places of `values`, different ones in a row."""
        num_rows, places = shape
        num_anchors = len(self.anchor_ids)
        rng = np.random.default_rng(self._drawn_seed())
        first = rng.integers(num_anchors, size=(num_rows, 1))
        rows, columns = one_hot_rows(self.anchor_ids)
        first[rows, 0] = columns
        stride = num_anchors // places
        columns = (first + stride * np.arange(places)) % num_anchors
        return tf.convert_to_tensor(columns, dtype=dtype)

    def _drawn_seed(self):
        # One for values and columns alike.
        if self.seed is None:
            self.seed = random.getrandbits(31)
        return self.seed


def one_hot_rows(anchor_ids):
    """Where objects that are anchors have their 1, as `(ids, columns)`.

    An object that stands for several anchors is the first of them.
    """
    ids, columns = np.unique(anchor_ids, return_index=True)
    return ids[ids >= 0], columns[ids >= 0]
