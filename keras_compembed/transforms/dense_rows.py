"""A transform that is held whole and shrunk whole."""

import tensorflow as tf

from keras_compembed.optimizers.device_rows import write
from keras_compembed.transforms.shrink import shrink
from keras_compembed.transforms.transform_rows import TransformRows


class DenseRows(TransformRows):
    """Algorithm 1 of Liang et al. as it stands: the reference."""

    def build(self):
        layer = self._layer
        self.variable = self._add_transform(
            (layer.input_dim, layer.num_anchors), layer.initialize_transform
        )

    def read(self, ids, room):
        del room

        @tf.custom_gradient
        def gather(table):
            def gradient(upstream):
                # Dense: Keras's optimizers take rows of several look-ups in
                # one step apart.
                return tf.math.unsorted_segment_sum(
                    upstream, ids, self._layer.input_dim
                )

            return tf.gather(table, ids), gradient

        return gather(self.read_all())

    def read_all(self):
        return tf.convert_to_tensor(self.variable.value)

    def whole(self):
        rows = self.read_all()
        return rows, tf.stop_gradient(rows), lambda ids: None

    def after_step(self, step, amount):
        rows = tf.convert_to_tensor(self.variable.value)
        threshold = amount
        if step.slot is not None:
            threshold = amount * step.rates(step.slot.value)
        shrunk = shrink(rows, threshold, non_negative=False)
        shrunk = self._layer.free_entries.restore(shrunk, rows)
        if self._layer.non_negative:
            shrunk = tf.maximum(shrunk, 0)
        write(self.variable, shrunk)

    def count(self):
        return tf.math.count_nonzero(self.variable.value)

    def rows(self, start, stop):
        return self.variable.value[start:stop].numpy()

    def load(self, transform):
        self.variable.assign(transform.dense_rows())
