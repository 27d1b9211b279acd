"""Base of the ways to hold a transform."""

import tensorflow as tf

from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.utils.chunks import of_all_ids
from keras_compembed.utils.custom_gradient import custom_gradient

_CHUNK_NUMBERS = 1 << 22


class TransformRows:
    """A way to hold the transform T of an `ANTEmbedding`."""

    # A layer makes an instance of its own from settings, by `set_shape` and
    # `build`. Rows read are always those after all proximal steps. Subclasses
    # have `make_variables`, `read` (rows of what `unique_ids` returned),
    # `after_step`, `count`, `rows` (a NumPy array), `load` (a
    # `SparseTransform`) and `whole`, what `project` needs.

    def __init__(self):
        self.variable = None
        self.compute_dtype = None
        self.num_rows = self.num_anchors = None

    def set_shape(self, num_rows, num_anchors):
        """Sets the shape of T."""
        self.num_rows = num_rows
        self.num_anchors = num_anchors

    def build(self, add_weight, dtype, start, l1, l1_value, free_entries):
        """Makes the variables."""
        self.dtype = dtype
        self.start = start
        self.l1 = l1
        self.l1_value = l1_value
        self.free_entries = free_entries
        self._make_weight = add_weight
        self.make_variables()

    def add_transform(self, shape, initializer):
        """The variable that the optimizer trains."""
        return self.add_variable(
            "transform", shape, self.dtype, initializer, trainable=True
        )

    def add_variable(
        self, name, shape, dtype, initializer="zeros", trainable=False
    ):
        """A variable, by default one that the optimizer does not move."""
        return self._make_weight(
            name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=trainable,
        )

    def settle(self):
        """Does now what was put off."""

    def state(self):
        """Dict of further arrays to be saved: a few bytes for each place."""
        return {}

    def load_state(self, state):
        """Takes what `state` gave."""

    def chunks(self):
        """Yields `(start, stop)` of parts small enough to be held."""
        size = max(1, _CHUNK_NUMBERS // self.num_anchors)
        for start in range(0, self.num_rows, size):
            yield start, min(start + size, self.num_rows)

    def to_sparse(self):
        """All rows as a `SparseTransform`."""
        return SparseTransform.from_parts(
            (self.rows(start, stop) for start, stop in self.chunks()),
            self.num_anchors,
        )

    def read_all(self):
        """All rows, differentiable."""
        number = self.num_rows
        return of_all_ids(lambda ids: self.read(ids, number), number)

    def project(self, scores, limit):
        """Products with all rows, whose gradient reaches only some of them."""
        # Equation 11 of Liang et al.: the gradient of a softmax is large for
        # few classes only. Rows that get one: those with the largest sums of
        # absolute gradients of their products.
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
        """The arguments of the constructor."""
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def gather(stored, places):
    """`tf.gather` with a dense gradient."""
    # Keras's optimizers take rows of several look-ups in one step apart.

    @custom_gradient
    def read(stored):
        def gradient(upstream):
            return tf.math.unsorted_segment_sum(
                upstream, places, stored.shape[0]
            )

        return tf.gather(stored, places), gradient

    return read(stored)
