"""Noise classes drawn by a table of weights, such as how often they occur."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.noises.noise import Noise
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import require

# What integer weights add up to, but for rounding.
TOTAL_WEIGHT = 1 << 38


class TableNoise(Noise):
    """Base of noises with a weight of its own for each class."""

    def __init__(self, counts=None, **kwargs):
        super().__init__(**kwargs)
        self.counts = counts
        if counts is not None:
            self.counts = check_scores("counts", counts)

    def attach(self, num_classes):
        require(
            self.counts is None or len(self.counts) == num_classes,
            "`counts` must have one entry for each class.",
            num_classes=num_classes,
            counts=np.size(self.counts),
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


@keras.saving.register_keras_serializable(package="keras_compembed")
class UnigramNoise(TableNoise):
    """Classes are drawn in proportion to a power of their counts.

    Counts to the power are scaled to integers that add up to 2 ** 38, at least
    1 each. Classes that were never counted are never drawn; to have them
    drawn, add something to all counts.

    Example:

    >>> labels = np.random.default_rng(0).integers(1000, size=5000)
    >>> noise = UnigramNoise(counts=np.bincount(labels, minlength=1000))
    >>> layer = kc.CANESoftmax(num_classes=1000, noise=noise)

    Args:
        counts: Array `(num_classes,)` of numbers of at least 0, not all 0: how
            often each class is a label.
        power: Number from 0, all that were counted alike, to 1, as often as
            counted. Defaults to `0.75`.

    References:
        - [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546), section 2.2
        - [Ji et al., 2015](https://arxiv.org/abs/1511.06909), section 3
    """

    def __init__(self, counts, power=0.75, **kwargs):
        super().__init__(check_scores("counts", counts), **kwargs)
        self.power = check_fraction("power", power, zero=True)
        require(
            self.counts.any(),
            "`counts` must not be zero for every class.",
            counts=counts,
        )

    def first_table(self):
        # Of the largest count, so that no power overflows.
        shares = (self.counts / self.counts.max()) ** self.power
        # 0 ** 0 is 1.
        shares = np.where(self.counts > 0, shares, 0)
        weights = np.rint(shares * (TOTAL_WEIGHT / shares.sum()))
        weights = np.where(self.counts > 0, np.maximum(weights, 1), 0)
        return np.append(0, np.cumsum(weights.astype("int64")))

    def load_own_variables(self, store):
        """Leaves the table: counts are settings, of the config."""

    def get_config(self):
        return {**super().get_config(), "power": self.power}


def check_fraction(name, value, zero=False):
    """Returns `value` as a `float`, or raises if it is not within 0 and 1."""
    value = check_positive_number(name, value, zero)
    require(value <= 1, f"`{name}` must be at most 1.", **{name: value})
    return value
