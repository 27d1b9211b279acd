"""Noise classes drawn by how often candidates miss them."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.noises.unigram_noise import TOTAL_WEIGHT
from keras_compembed.noises.unigram_noise import TableNoise
from keras_compembed.noises.unigram_noise import check_fraction
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import write
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class LearnedNoise(TableNoise):
    """Classes are drawn as often as they were labels outside the candidates.

    Noises drawn by the probabilities that the model gives to classes outside
    the candidates would estimate their sum without variance. Of distributions
    that all examples share, the nearest to these is their mean, and labels
    that candidates missed are a sample of it.

    A part of the probability is spread evenly: `smoothing`, or, while little
    was observed, the share of different classes among all misses, of which
    the next miss is likely to be a new class.

    Example:

    >>> layer = kc.CANESoftmax(num_classes=1000, noise="learned")

    Args:
        power: Number from 0 to 1, which counts of misses are raised to.
            Defaults to `1.0`.
        smoothing: Number above 0, up to 1: the least part that is spread
            evenly. No class is drawn much more than `1 / smoothing` times
            more rarely than by `UniformNoise`. Defaults to `0.1`.
        refresh_every: Positive integer, steps of training after which the
            table is made anew. Defaults to `100`.
        decay: Number above 0, up to 1: what counts are multiplied by in each
            step, so that those of a model long past fade. Defaults to
            `0.9999`; 1.0 is plain counts.
        counts: Optional array `(num_classes,)` of numbers of at least 0,
            misses to start from. Defaults to none, which is uniform.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 8:
          noises estimated in training as work to be done
        - [Witten & Bell, 1991](https://doi.org/10.1109/18.87000), method C:
          the share of what is new
    """

    def __init__(
        self,
        power=1.0,
        smoothing=0.1,
        refresh_every=100,
        decay=0.9999,
        counts=None,
        **kwargs,
    ):
        super().__init__(counts, **kwargs)
        self.power = check_fraction("power", power, zero=True)
        self.smoothing = check_fraction("smoothing", smoothing)
        self.refresh_every = check_positive_int("refresh_every", refresh_every)
        self.decay = check_fraction("decay", decay)

    def build(self, input_shape=None):
        first = self._first_misses()
        # float64: float32 stops counting at 2 ** 24.
        self.misses = self.add_weight(
            shape=first.shape,
            dtype="float64",
            initializer=lambda shape, dtype: first,
            trainable=False,
            autocast=False,
            name="misses",
        )
        # Steps since the table was made.
        self.age = self.add_weight(
            dtype="int64", initializer="zeros", trainable=False, name="age"
        )
        super().build(input_shape)

    def _first_misses(self):
        return (
            np.zeros(self.num_classes) if self.counts is None else self.counts
        )

    def first_table(self):
        return self._make_table(tf.constant(self._first_misses(), "float64"))

    def observe(self, labels, candidates_hit):
        missed = tf.logical_not(candidates_hit)
        missed &= (labels >= 0) & (labels < self.num_classes)
        labels = tf.where(missed, labels, 0)
        labels = of_all_devices(labels)
        missed = of_all_devices(tf.cast(missed, "int32"))
        age = own_value(self.age) + 1
        # What a miss is worth once counts decay with the table: only then
        # does a step touch all counts.
        worth = self.decay ** -tf.cast(age, "float64")
        tf.raw_ops.ResourceScatterAdd(
            resource=self.misses.value.handle,
            indices=labels,
            updates=worth * tf.cast(missed, "float64"),
        )
        due = age >= self.refresh_every
        write(self.age, tf.where(due, tf.zeros_like(age), age))
        tf.cond(due, lambda: self._refresh(age), lambda: None)

    def _refresh(self, age):
        misses = own_value(self.misses)
        misses *= self.decay ** tf.cast(age, "float64")
        write(self.misses, misses)
        write(self.table, self._make_table(misses))

    def _make_table(self, misses):
        total = tf.reduce_sum(misses)
        different = tf.reduce_sum(tf.minimum(misses, 1))
        even = tf.math.divide_no_nan(different, total + different)
        even = tf.maximum(even, self.smoothing)
        powers = tf.where(misses > 0, misses**self.power, 0)
        even = tf.where(total > 0, even, 1)
        shares = (1 - even) * tf.math.divide_no_nan(
            powers, tf.reduce_sum(powers)
        )
        shares += even / self.num_classes
        weights = tf.cast(tf.round(TOTAL_WEIGHT * shares), "int64")
        table = tf.cumsum(tf.maximum(weights, 1))
        return tf.concat([tf.zeros((1,), "int64"), table], axis=0)

    def get_config(self):
        return {
            **super().get_config(),
            "power": self.power,
            "smoothing": self.smoothing,
            "refresh_every": self.refresh_every,
            "decay": self.decay,
        }
