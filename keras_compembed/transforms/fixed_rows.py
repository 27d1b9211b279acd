"""A transform of which only the non-zeros are held, for inference."""

import numpy as np
import tensorflow as tf

from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.transforms.sparse_transform import column_dtype
from keras_compembed.transforms.sparse_transform import value_dtype
from keras_compembed.transforms.transform_rows import TransformRows


class FixedRows(TransformRows):
    """Compressed rows, as in `SparseTransform`. They are not trained.

    Args:
        layer: The `ANTEmbedding`.
        num_nonzeros: Integer.
        longest_row: Integer, the most non-zeros of any row.
    """

    def __init__(self, layer, num_nonzeros, longest_row):
        super().__init__(layer)
        self.num_nonzeros = num_nonzeros
        self.longest_row = longest_row

    def build(self):
        layer = self._layer
        fixed = {"initializer": "zeros", "trainable": False}
        # Without non-zeros too, look-ups have something to look at.
        length = max(1, self.num_nonzeros)
        large = self.num_nonzeros > np.iinfo("int32").max
        self._offsets = self._add_weight(
            shape=(layer.input_dim + 1,),
            dtype="int64" if large else "int32",
            name="offsets",
            **fixed,
        )
        self._columns = self._add_weight(
            shape=(length,),
            dtype=column_dtype(layer.num_anchors).name,
            name="columns",
            **fixed,
        )
        self._values = self._add_weight(
            shape=(length,),
            dtype=value_dtype(layer.variable_dtype),
            name="values",
            **fixed,
        )

    def read(self, ids, room):
        del room
        self._check_loaded()
        num_anchors = self._layer.num_anchors
        starts = tf.gather(self._offsets.value, ids)
        lengths = tf.gather(self._offsets.value, ids + 1) - starts
        places = tf.range(self.longest_row, dtype=starts.dtype)
        inside = places < lengths[:, None]
        places = tf.where(inside, starts[:, None] + places, 0)
        values = tf.gather(self._values.value, places)
        columns = tf.gather(self._columns.value, places)
        columns = tf.where(inside, tf.cast(columns, tf.int32), num_anchors)
        return scatter_columns(columns, values, num_anchors)

    def _check_loaded(self):
        # XLA leaves this out.
        tf.debugging.assert_equal(
            self._offsets.value[-1],
            tf.cast(self.num_nonzeros, self._offsets.dtype),
            f"The weights of the layer {self._layer.name!r} must be set, or "
            "loaded, before it is used: it was made from its configuration "
            "alone, which does not hold the transform that `sparsify` fixed.",
        )

    def rows(self, start, stop):
        return self.to_sparse().dense_rows(start, stop)

    def to_sparse(self):
        return SparseTransform(
            np.asarray(self._offsets.value),
            np.asarray(self._columns.value)[: self.num_nonzeros],
            np.asarray(self._values.value)[: self.num_nonzeros],
            self._layer.num_anchors,
        )

    def load(self, transform):
        if transform.nnz != self.num_nonzeros:
            raise ValueError(
                "The weights must be of a layer with as many non-zeros. "
                f"Received: {transform.nnz} non-zeros for a layer with "
                f"{self.num_nonzeros}."
            )
        self._offsets.assign(transform.offsets)
        if transform.nnz:
            self._columns.assign(transform.columns)
            self._values.assign(transform.values)


def scatter_columns(columns, values, num_columns):
    """Dense rows `(rows, num_columns)` of some numbers in each.

    Args:
        columns: int32 tensor `(rows, some)`, different within a row;
            `num_columns` for what is to be left out.
        values: Tensor like `columns`.
        num_columns: Integer.
    """
    num_rows = tf.shape(columns)[0]
    width = num_columns + 1
    places = tf.range(num_rows)[:, None] * width + columns
    flat = tf.math.unsorted_segment_sum(values, places, num_rows * width)
    return tf.reshape(flat, (-1, width))[:, :num_columns]
