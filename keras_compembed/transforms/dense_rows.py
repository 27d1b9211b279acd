"""A transform that is held whole and shrunk whole."""

import keras
import tensorflow as tf

from keras_compembed.optimizers.device_rows import write
from keras_compembed.transforms.proximal_step import shrink
from keras_compembed.transforms.transform_rows import TransformRows
from keras_compembed.transforms.transform_rows import gather


@keras.saving.register_keras_serializable(package="keras_compembed")
class DenseRows(TransformRows):
    """All of T, shrunk after each step: Algorithm 1 of Liang et al."""

    def make_variables(self):
        self.variable = self.add_transform(
            (self.num_rows, self.num_anchors), self.start.table
        )

    def read(self, ids, room, training=False):
        del room, training
        return gather(self.read_all(), ids)

    def read_all(self):
        return tf.convert_to_tensor(self.variable.value)

    def whole(self):
        rows = self.read_all()
        return rows, tf.stop_gradient(rows), lambda ids: None

    def after_step(self, step, amount):
        rows = self.read_all()
        threshold = amount
        if step.slot is not None:
            threshold = amount * step.rates(step.slot.value)
        shrunk = shrink(rows, threshold, non_negative=False)
        shrunk = self.free_entries.restore(shrunk, rows)
        if self.l1.non_negative:
            shrunk = tf.maximum(shrunk, 0)
        write(self.variable, shrunk)

    def count(self):
        return tf.math.count_nonzero(self.variable.value)

    def rows(self, start, stop):
        return self.variable.value[start:stop].numpy()

    def load(self, transform):
        self.variable.assign(transform.dense_rows())
