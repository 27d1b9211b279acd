"""How a layer holds its transform."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.optimizers.drop_weights import drop_weights
from keras_compembed.optimizers.stepped_variable import SteppedVariable
from keras_compembed.transforms.sparse_transform import SparseTransform

_CHUNK_NUMBERS = 1 << 22


class TransformRows:
    """The transform T of an `ANTEmbedding`, in one of several forms.

    Rows that it gives are always those after all proximal steps, whatever the
    form puts off.

    Args:
        layer: The `ANTEmbedding`, in which weights are made.

    Attributes:
        variable: Keras variable that the optimizer trains, or None.
    """

    variable = None

    def __init__(self, layer):
        self._layer = layer
        self._names = []

    def build(self):
        """Makes the weights."""
        raise NotImplementedError

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
        size = max(1, _CHUNK_NUMBERS // self._layer.num_anchors)
        for start in range(0, self._layer.input_dim, size):
            yield start, min(start + size, self._layer.input_dim)

    def to_sparse(self):
        """All rows as a `SparseTransform`."""
        return SparseTransform.from_parts(
            (self.rows(start, stop) for start, stop in self.chunks()),
            self._layer.num_anchors,
        )

    def read_all(self):
        """All rows, differentiable."""
        return self.read(tf.range(self._layer.input_dim), self._layer.input_dim)

    def project(self, scores, limit):
        """Products with all rows, whose gradient reaches only some of them.

        Equation 11 of Liang et al.: the gradient of a softmax is large for
        few classes only.

        Args:
            scores: Tensor `(batch_size, num_anchors)`.
            limit: Integer. Rows that get a gradient: those with the largest
                sums of absolute gradients of their products.

        Returns:
            Tensor `(batch_size, input_dim)`.
        """
        stored, rows, settle = self.whole()
        limit = min(limit, self._layer.input_dim)

        @tf.custom_gradient
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
        raise ValueError(
            "`softmax_rows` must be None with storage='sparse', which learns "
            "from the gradients of rows looked up."
        )

    def drop(self):
        """Lets go of the weights."""
        drop_weights(self._layer, self._names)

    def _add_transform(self, shape, initializer):
        """The weight that the optimizer trains."""
        layer = self._layer
        with keras.name_scope(layer.name, caller=layer):
            transform = SteppedVariable(
                initializer,
                shape=shape,
                dtype=layer.variable_dtype,
                autocast=False,
                name="transform",
                after_step=layer.take_proximal_step,
            )
        transform.regularizer = layer.transform_regularizer
        layer.transform = transform
        self._names.append("transform")
        return transform

    def _add_weight(self, name, **kwargs):
        weight = self._layer.add_weight(name=name, autocast=False, **kwargs)
        # Keras lets go of weights that are attributes when these are deleted.
        setattr(self._layer, name, weight)
        self._names.append(name)
        return weight


def one_hot_rows(anchor_ids):
    """Where objects that are anchors have their 1, as `(ids, columns)`.

    An object that stands for several anchors is the first of them.
    """
    ids, columns = np.unique(anchor_ids, return_index=True)
    return ids[ids >= 0], columns[ids >= 0]
