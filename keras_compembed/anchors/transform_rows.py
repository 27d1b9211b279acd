"""Base of the storages of a transform, and shared functions."""

import functools
import random

import numpy as np
import tensorflow as tf

from keras_compembed.anchors.sparse_transform import SparseTransform
from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.tensor_ops import of_all_ids

_CHUNK_NUMBERS = 1 << 22
# Initial entries in a row, and the largest initial value.
_START_NONZEROS = 4
_START_VALUE = 0.1


class TransformRows(Settings):
    """A storage of the transform T of an `ANTEmbedding`."""

    # A layer makes its own instance from settings, with `set_shape` and
    # `build`. Reading rows applies all proximal steps. Subclasses define
    # `make_variables`, `read` (rows of the result of `unique_ids`),
    # `after_step`, `count`, `rows` (a NumPy array), `load` (a
    # `SparseTransform`), and `whole` for `project`.

    # Attributes that are constructor arguments.
    _settings = ()

    def __init__(self):
        self.variable = None
        self.compute_dtype = None
        self.num_rows = self.num_anchors = None

    def set_shape(self, num_rows, num_anchors):
        self.num_rows = num_rows
        self.num_anchors = num_anchors

    def build(self, add_weight, dtype, start, l1, l1_value, free_entries):
        self.dtype = dtype
        self.start = start
        self.l1 = l1
        self.l1_value = l1_value
        self.free_entries = free_entries
        self._make_weight = add_weight
        self.make_variables()

    def add_transform(self, shape, initializer):
        return self.add_variable(
            "transform", shape, self.dtype, initializer, trainable=True
        )

    def add_variable(
        self, name, shape, dtype, initializer="zeros", trainable=False
    ):
        """Adds a variable, by default one that is not trained."""
        return self._make_weight(
            name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=trainable,
        )

    def settle(self):
        """Applies delayed updates now."""

    def state(self):
        """Dict of further arrays to save: a few bytes for each place."""
        return {}

    def load_state(self, state):
        """Restores the result of `state`."""

    def chunks(self):
        """Yields `(start, stop)` of chunks that fit in memory."""
        size = max(1, _CHUNK_NUMBERS // self.num_anchors)
        for start in range(0, self.num_rows, size):
            yield start, min(start + size, self.num_rows)

    def to_sparse(self):
        return SparseTransform.from_parts(
            (self.rows(start, stop) for start, stop in self.chunks()),
            self.num_anchors,
        )

    def read_all(self):
        """All rows, differentiable."""
        number = self.num_rows
        return of_all_ids(lambda ids: self.read(ids, number), number)

    def project(self, scores, limit):
        """Products with all rows, with a gradient for only some of them."""
        # Equation 11 of Liang et al.: a softmax has large gradients for few
        # classes only. Here, the rows with the largest sums of absolute
        # gradients of their products get a gradient.
        stored, rows, settle = self.whole()
        limit = min(limit, self.num_rows)

        @custom_gradient
        def product(scores, stored):
            def gradient(upstream):
                size = tf.reduce_sum(tf.abs(upstream), axis=0)
                size = sum_over_devices(size)
                ids = tf.math.top_k(size, limit).indices
                settle(ids)
                part = tf.gather(upstream, ids, axis=1)
                of_rows = tf.matmul(part, scores, transpose_a=True)
                of_rows = share_of_device(sum_over_devices(of_rows))
                return tf.matmul(upstream, rows), tf.IndexedSlices(
                    of_rows, ids, tf.shape(stored)
                )

            return tf.matmul(scores, rows, transpose_b=True), gradient

        return product(scores, stored)

    def get_config(self):
        return {name: getattr(self, name) for name in self._settings}


def gather(stored, places):
    """`tf.gather` with a dense gradient."""
    # Keras optimizers apply the rows of several lookups separately.

    @custom_gradient
    def read(stored):
        def gradient(upstream):
            return tf.math.unsorted_segment_sum(
                upstream, places, stored.shape[0]
            )

        return tf.gather(stored, places), gradient

    return read(stored)


def scatter_columns(columns, values, num_columns):
    """Dense rows `(rows, num_columns)` from a few entries in each."""
    num_rows = tf.shape(columns)[0]
    width = num_columns + 1
    places = tf.expand_dims(tf.range(num_rows) * width, 1) + columns
    # Flat tensors are much faster, and ONNX supports them.
    flat = tf.math.unsorted_segment_sum(
        tf.reshape(values, (-1,)),
        tf.reshape(places, (-1,)),
        num_rows * width,
    )
    return tf.reshape(flat, (-1, width))[:, :num_columns]


class FreeEntries:
    """The matrix 1 - S(G) of Liang et al., section 3.3, as a sparse matrix."""

    def __init__(self, relations, anchor_ids):
        offsets, columns = [0], []
        if relations is not None:
            offsets, columns = relations.free_entries(anchor_ids)
        self.num_columns = len(anchor_ids)
        lengths = np.diff(offsets)
        self._longest = int(lengths.max(initial=0))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        self._entries = np.stack([rows, columns], axis=1).astype("int64")
        self._starts = np.asarray(offsets[:-1], "int32")
        self._lengths = lengths.astype("int32")
        self._columns = np.asarray(columns, "int32")

    def __len__(self):
        return len(self._entries)

    def of_rows(self, ids):
        """Boolean tensor `(ids, num_columns)`, or None if nothing is free."""
        if not len(self):
            return None
        places = tf.range(self._longest)
        inside = places < tf.gather(self._lengths, ids)[:, None]
        places = places + tf.gather(self._starts, ids)[:, None]
        columns = tf.gather(self._columns, tf.where(inside, places, 0))
        columns = tf.where(inside, columns, self.num_columns)
        ones = tf.ones_like(columns, "float32")
        return scatter_columns(columns, ones, self.num_columns) > 0

    def of_entries(self, ids, columns):
        """Boolean tensor like `columns`, `(ids, some columns)`."""
        free = self.of_rows(ids)
        return None if free is None else tf.gather(free, columns, batch_dims=1)

    def restore(self, shrunk, values):
        """Copies the free entries of `values` into `shrunk`."""
        if not len(self):
            return shrunk
        return tf.tensor_scatter_nd_update(
            shrunk, self._entries, tf.gather_nd(values, self._entries)
        )


class TransformStart:
    """Initializers of T: dense, or its entries and their columns."""

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
            # Keras may build layers in a graph, which has no values.
            with tf.init_scope():
                table = np.array(self.initializer(shape, dtype=dtype))
            if self.non_negative:
                table = np.maximum(table, 0)
            rows, columns = one_hot_rows(self.anchor_ids)
            table[rows] = 0
            table[rows, columns] = 1
        return tf.convert_to_tensor(table, dtype=dtype)

    def values(self, shape, dtype=None):
        """The entries of rows, `(rows, places)`."""
        rng = np.random.default_rng(self._seed + 1)
        low = 0 if self.non_negative else -_START_VALUE
        values = rng.uniform(low, _START_VALUE, shape)
        values[:, _START_NONZEROS:] = 0
        rows, _ = one_hot_rows(self.anchor_ids)
        values[rows] = 0
        values[rows, 0] = 1
        return values.astype(dtype or "float64")

    def columns(self, shape, dtype="int32"):
        """The columns of the entries of `values`, distinct in a row."""
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
        """The same seed for values and columns."""
        return random.getrandbits(31)


def one_hot_rows(anchor_ids):
    """The entries of 1 of objects with an anchor, as `(ids, columns)`."""
    ids, columns = np.unique(anchor_ids, return_index=True)
    return ids[ids >= 0], columns[ids >= 0]
