"""Noise classes drawn by a table of weights."""

import math
import numbers

import tensorflow as tf

from keras_compembed.noises.noise import Noise
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.validation import check_scores

# What integer weights add up to, but for rounding.
TOTAL_WEIGHT = 1 << 38


class TableNoise(Noise):
    """Base of noises with a weight of its own for each class."""

    def __init__(self, counts=None, **kwargs):
        super().__init__(**kwargs)
        self.counts = None
        if counts is not None:
            self.counts = check_scores("counts", counts)

    def attach(self, num_classes):
        if self.counts is not None and len(self.counts) != num_classes:
            raise ValueError(
                "`counts` must have one entry for each class, "
                f"num_classes={num_classes}. "
                f"Received: {len(self.counts)} of them."
            )
        super().attach(num_classes)

    def build(self, input_shape=None):
        self.table = self.add_weight(
            shape=(self.num_classes + 1,),
            dtype="int64",
            initializer=lambda shape, dtype: self.first_table(),
            trainable=False,
            name="table",
        )
        self.built = True

    def first_table(self):
        """What the table is before training."""
        raise NotImplementedError

    def get_config(self):
        return {**super().get_config(), "counts": pack_array(self.counts)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "counts": unpack_array(config["counts"])})

    def weight_below(self, ids):
        weights = gather_rows(self.table, tf.reshape(ids, (-1,)))
        return tf.reshape(weights, tf.shape(ids))

    def class_at(self, weights):
        flat = tf.reshape(weights, (-1,))
        ids = tf.zeros_like(flat, "int32")
        # Unrolled: XLA compares all of a table in `tf.searchsorted`.
        for power in reversed(range(math.ceil(math.log2(self.num_classes)))):
            # Past the end is the total, which is above all weights.
            further = tf.minimum(ids + (1 << power), self.num_classes)
            below = gather_rows(self.table, further)
            ids = tf.where(below <= flat, further, ids)
        return tf.reshape(ids, tf.shape(weights))


def check_fraction(name, value, zero=False):
    """Returns `value` as a `float`, or raises if it is not within 0 and 1."""
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not 0 <= value <= 1
        or (value == 0 and not zero)
    ):
        rule = "from 0 to 1" if zero else "above 0, up to 1"
        raise ValueError(
            f"`{name}` must be a number {rule}. Received: {name}={value!r}."
        )
    return float(value)
