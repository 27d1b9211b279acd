"""Base of the ways to hold a transform."""

import tensorflow as tf

from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.utils.chunks import of_all_ids
from keras_compembed.utils.custom_gradient import custom_gradient

_CHUNK_NUMBERS = 1 << 22


class TransformRows:
    """A way to hold the transform T of an `ANTEmbedding`.

    Constructor arguments are settings. A layer makes an instance of its own
    from them, which gets a shape by `set_shape` and variables by `build`.

    Rows that it gives are always those after all proximal steps, whatever it
    puts off.

    To hold T in another way, override `make_variables`, `read`, `after_step`,
    `count`, `rows` and `load`, and register the class with
    `keras.saving.register_keras_serializable`.

    Attributes:
        variable: Keras variable that the optimizer trains, or None.
        variables: List of all Keras variables that are weights.
        loss_scale: Keras variable, what losses of the last step were
            multiplied by, or None where it makes no difference.
        num_rows: Integer, or None before `set_shape`.
        num_anchors: Integer, or None before `set_shape`.
    """

    def __init__(self):
        self.variable = None
        self.variables = []
        self.loss_scale = None
        self.num_rows = self.num_anchors = None

    def set_shape(self, num_rows, num_anchors):
        """Sets the shape of T.

        Raises:
            ValueError: if the settings do not fit it.
        """
        self.num_rows = num_rows
        self.num_anchors = num_anchors

    def build(self, add_weight, dtype, start, l1, l1_value, free_entries):
        """Makes the variables.

        Args:
            add_weight: Function from `name`, `shape`, `initializer`, `dtype`
                and `trainable` to a Keras variable. One that is trainable
                calls `after_step` by a `ProximalStep`.
            dtype: String, of the numbers of T.
            start: `TransformStart`.
            l1: `L1`.
            l1_value: Keras variable, the weight of `sum |T|` in the loss.
            free_entries: `FreeEntries`, which are not shrunk.
        """
        self.dtype = dtype
        self.start = start
        self.l1 = l1
        self.l1_value = l1_value
        self.free_entries = free_entries
        self._make_weight = add_weight
        self.make_variables()

    def make_variables(self):
        """Makes the variables with `add_variable` and `add_transform`."""
        raise NotImplementedError

    def add_variable(self, name, shape, dtype, initializer="zeros"):
        """A variable that the optimizer does not move."""
        return self._add(name, shape, dtype, initializer, trainable=False)

    def add_flags(self, name, shape):
        """Booleans, as numbers for what sums up or shows all weights."""
        return self.add_variable(name, shape, "uint8")

    def add_transform(self, shape, initializer):
        """The variable that the optimizer trains."""
        return self._add(
            "transform", shape, self.dtype, initializer, trainable=True
        )

    def _add(self, name, shape, dtype, initializer, trainable):
        variable = self._make_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=trainable,
        )
        self.variables.append(variable)
        return variable

    def read(self, ids, room):
        """Rows `(ids, num_anchors)` of what `unique_ids` returned.

        Differentiable. Reading changes nothing; what is put off may be done
        when gradients are taken.
        """
        raise NotImplementedError

    def after_step(self, step, amount):
        """The proximal step that follows a step of the optimizer.

        Args:
            step: `StepSize` of `variable`.
            amount: float32 scalar tensor, `step.scale` times l1.
        """
        raise NotImplementedError

    def count(self):
        """Non-zeros, an int64 scalar tensor."""
        raise NotImplementedError

    def rows(self, start, stop):
        """Rows `start` to before `stop` as a NumPy array."""
        raise NotImplementedError

    def load(self, transform):
        """Sets all rows to those of a `SparseTransform`."""
        raise NotImplementedError

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
        """Products with all rows, whose gradient reaches only some of them.

        Equation 11 of Liang et al.: the gradient of a softmax is large for
        few classes only.

        Args:
            scores: Tensor `(batch_size, num_anchors)`.
            limit: Integer. Rows that get a gradient: those with the largest
                sums of absolute gradients of their products.

        Returns:
            Tensor `(batch_size, num_rows)`.
        """
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

    def whole(self):
        """All of it, for `project`.

        Returns:
            Tensors of the rows as stored, which gradients go to, and as they
            are, and a function that makes them one for some ids.
        """
        raise NotImplementedError

    def get_config(self):
        """The arguments of the constructor."""
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)
