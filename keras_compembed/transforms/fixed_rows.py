"""A transform of which only the non-zeros are held, in fixed places."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.device_rows import write
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.transforms.sparse_transform import column_dtype
from keras_compembed.transforms.sparse_transform import value_dtype
from keras_compembed.transforms.transform_rows import TransformRows
from keras_compembed.transforms.transform_rows import gather
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class FixedRows(TransformRows):
    """Compressed rows, as in `SparseTransform`, whose places are fixed."""

    # No proximal step moves them. Where numbers must not be negative, those
    # that a step of the optimizer makes so become 0, and keep their places.

    def __init__(self, num_nonzeros, longest_row, trainable=False):
        super().__init__()
        self.num_nonzeros = num_nonzeros
        self.longest_row = longest_row
        self.trainable = trainable

    @classmethod
    def for_transform(cls, transform, trainable=False):
        """Rows with room for a `SparseTransform`."""
        longest_row = int(transform.row_lengths.max(initial=0))
        rows = cls(transform.nnz, longest_row, trainable)
        rows.set_shape(transform.num_rows, transform.num_columns)
        return rows

    def make_variables(self):
        # Without non-zeros too, look-ups have something to look at.
        length = max(1, self.num_nonzeros)
        large = self.num_nonzeros > np.iinfo("int32").max
        self._offsets = self.add_variable(
            "offsets", (self.num_rows + 1,), "int64" if large else "int32"
        )
        self._columns = self.add_variable(
            "columns", (length,), column_dtype(self.num_anchors).name
        )
        if self.trainable:
            self.variable = self._values = self.add_transform(
                (length,), "zeros"
            )
        else:
            self._values = self.add_variable(
                "values", (length,), value_dtype(self.dtype)
            )

    def read(self, ids, room, training=False):
        del room, training
        # XLA leaves this out.
        tf.debugging.assert_equal(
            self._offsets.value[-1],
            tf.cast(self.num_nonzeros, self._offsets.dtype),
            f"Weights such as {self._offsets.path} must be set, or loaded, "
            "first: the configuration alone does not hold the transform.",
        )
        num_anchors = self.num_anchors
        starts = tf.gather(self._offsets.value, ids)
        lengths = tf.gather(self._offsets.value, ids + 1) - starts
        places = tf.range(self.longest_row, dtype=starts.dtype)
        inside = places < lengths[:, None]
        places = tf.where(inside, starts[:, None] + places, 0)
        stored = tf.convert_to_tensor(self._values.value)
        read = gather if self.trainable else tf.gather
        values = read(stored, places)
        columns = tf.gather(self._columns.value, places)
        columns = tf.where(inside, tf.cast(columns, tf.int32), num_anchors)
        return scatter_columns(columns, values, num_anchors)

    def after_step(self, step, amount):
        del step, amount
        if self.l1.non_negative:
            write(self.variable, tf.maximum(self.variable.value, 0))

    def project(self, scores, limit):
        del limit
        return tf.matmul(scores, self.read_all(), transpose_b=True)

    def rows(self, start, stop):
        return self.to_sparse().dense_rows(start, stop)

    def to_sparse(self):
        return SparseTransform(
            np.asarray(self._offsets.value),
            np.asarray(self._columns.value)[: self.num_nonzeros],
            np.asarray(self._values.value)[: self.num_nonzeros],
            self.num_anchors,
        )

    def load(self, transform):
        require(
            transform.nnz == self.num_nonzeros,
            f"A transform must have as many non-zeros, {self.num_nonzeros}.",
            nnz=transform.nnz,
        )
        self._offsets.assign(transform.offsets)
        if transform.nnz:
            self._columns.assign(transform.columns)
            self._values.assign(transform.values)

    def get_config(self):
        return {
            "num_nonzeros": self.num_nonzeros,
            "longest_row": self.longest_row,
            "trainable": self.trainable,
        }


def scatter_columns(columns, values, num_columns):
    """Dense rows `(rows, num_columns)` of some numbers in each."""
    num_rows = tf.shape(columns)[0]
    width = num_columns + 1
    places = tf.expand_dims(tf.range(num_rows) * width, 1) + columns
    # Much faster of flat tensors, and what ONNX has.
    flat = tf.math.unsorted_segment_sum(
        tf.reshape(values, (-1,)),
        tf.reshape(places, (-1,)),
        num_rows * width,
    )
    return tf.reshape(flat, (-1, width))[:, :num_columns]
