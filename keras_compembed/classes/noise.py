"""Distributions of noise classes."""

import functools
import math

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import rows_of_all_devices
from keras_compembed.optimizers.device_rows import write
from keras_compembed.utils.saving import PackedConfig
from keras_compembed.utils.validation import check_one_a_class
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import check_unattached
from keras_compembed.utils.validation import require

# Sum of the integer weights, up to rounding.
TOTAL_WEIGHT = 1 << 38


class Noise(PackedConfig, keras.layers.Layer):
    """Base of the distributions of noise classes."""

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.num_classes = None

    def attach(self, num_classes: int) -> None:
        """Sets the number of classes, before `build`."""
        check_unattached(self)
        self.num_classes = num_classes

    def weight_below(self, ids: tf.Tensor) -> tf.Tensor:
        """int64 sum of the weights of all classes below each id."""
        raise NotImplementedError

    def class_at(self, weights: tf.Tensor) -> tf.Tensor:
        """The last class with a `weight_below` up to the given weight."""
        raise NotImplementedError

    def sample(
        self, bits: tf.Tensor, excluded: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Samples classes with replacement, without the excluded ones."""
        # `bits` is `(rows, samples)`, or `(samples,)` for all rows. `excluded`
        # is padded by -1. The result is -1 if all classes are excluded.
        weights, starts, left = self._cut_out(excluded)
        shared = bits.shape.rank == 1
        if shared:
            bits = bits[None]
        # `floormod` has the sign of the divisor.
        places = tf.math.floormod(bits, tf.maximum(left, 1))
        # Skip the weights of excluded classes below each place.
        cuts = starts - tf.cumsum(weights, axis=-1, exclusive=True)
        passed = cuts[:, None, :] <= places[:, :, None]
        passed = tf.where(passed, weights[:, None], tf.zeros((), "int64"))
        places += tf.reduce_sum(passed, axis=-1)
        places = tf.where(left > 0, places, tf.zeros_like(places))
        ids = tf.where(left > 0, self.class_at(places), -1)
        return ids[0] if shared else ids

    def log_prob(
        self, ids: tf.Tensor, excluded: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Log probabilities of samples; 0 where an id is -1."""
        _, _, left = self._cut_out(excluded)
        if ids.shape.rank == 1 and left.shape[0] == 1:
            left = left[0]
        logarithms = _log(self._weights(tf.maximum(ids, 0))) - _log(left)
        return tf.where(ids >= 0, tf.cast(logarithms, "float32"), 0.0)

    def _may_draw(self, ids):
        """Whether `sample` may draw classes. Negative ids are no classes."""
        return (ids >= 0) & (self._weights(tf.maximum(ids, 0)) > 0)

    def observe(self, labels: tf.Tensor, candidates_hit: tf.Tensor) -> None:
        """Called once in each training step. Ignores labels out of range."""
        # AutoGraph warns of a body with only a docstring.
        return

    def _weights(self, ids):
        after = tf.minimum(ids + 1, self.num_classes)
        return self.weight_below(after) - self.weight_below(ids)

    def _cut_out(self, excluded):
        """Weights of excluded classes, weights below them, total of others."""
        if excluded is None:
            excluded = tf.zeros((1, 0), "int32")
        excluded = tf.where(excluded >= 0, excluded, self.num_classes)
        if excluded.shape.rank == 1:
            excluded = excluded[None]
        excluded = tf.sort(excluded, axis=-1)
        weights, starts = self._weights(excluded), self.weight_below(excluded)
        total = self.weight_below(tf.constant(self.num_classes))
        left = total - tf.reduce_sum(weights, axis=-1, keepdims=True)
        return weights, starts, left

    def get_build_config(self):
        # The layer that has the noise builds it.
        return None


def _log(weights):
    # At least 1, so that labels without counts have a finite loss. float32
    # would have errors of 1e-6 near 20.
    return tf.math.log(tf.cast(tf.maximum(weights, 1), "float64"))


@keras.saving.register_keras_serializable(package="keras_compembed")
class UniformNoise(Noise):
    """Draws all classes with equal probability."""

    def weight_below(self, ids):
        return tf.cast(ids, "int64")

    def class_at(self, weights):
        return tf.cast(weights, "int32")


def random_bits(seed, columns, rows=None):
    """Uniform integers over the range of int64."""
    draw = functools.partial(
        tf.random.stateless_uniform,
        seed=tf.cast(seed, "int32"),
        minval=None,
        maxval=None,
        dtype="int64",
    )
    if rows is None:
        return draw((columns,))
    if not on_several_devices():
        return draw((rows, columns))
    start, total = rows_of_all_devices(rows)
    return draw((total, columns))[start : start + rows]


def random_order(seed, first):
    """Places in random order, those in `first` first, equal on all devices."""
    seed = tf.random.experimental.stateless_fold_in(tf.cast(seed, "int32"), 1)
    keys = tf.random.stateless_uniform(tf.shape(first), seed)
    return tf.argsort(tf.where(first, keys, 1.0 + keys))


class TableNoise(Noise):
    """Base of noise distributions with a weight for each class."""

    _settings = ("power",)
    _arrays = ("counts",)

    def __init__(self, counts: ArrayLike | None = None, **kwargs: object):
        super().__init__(**kwargs)
        self.counts = None if counts is None else check_scores("counts", counts)

    def attach(self, num_classes):
        if self.counts is not None:
            check_one_a_class("counts", self.counts, num_classes)
        super().attach(num_classes)

    def build(self, input_shape=None):
        self.table = self.add_weight(
            shape=(self.num_classes + 1,),
            dtype="int64",
            initializer=lambda shape, dtype: self.first_table(),
            trainable=False,
            name="table",
        )

    def first_table(self) -> ArrayLike:
        """The table before training."""
        raise NotImplementedError

    def weight_below(self, ids):
        weights = gather_rows(self.table, tf.reshape(ids, (-1,)))
        return tf.reshape(weights, tf.shape(ids))

    def class_at(self, weights):
        flat = tf.reshape(weights, (-1,))
        ids = tf.zeros_like(flat, "int32")
        # An unrolled binary search: in XLA, `tf.searchsorted` reads the whole
        # table.
        for power in reversed(range(math.ceil(math.log2(self.num_classes)))):
            # The last entry is the total, above all weights.
            further = tf.minimum(ids + (1 << power), self.num_classes)
            below = gather_rows(self.table, further)
            ids = tf.where(below <= flat, further, ids)
        return tf.reshape(ids, tf.shape(weights))


@keras.saving.register_keras_serializable(package="keras_compembed")
class UnigramNoise(TableNoise):
    """Draws classes in proportion to a power of their counts.

    Classes with a count of 0 are never drawn. To include them, add a constant
    to all counts.

    Example:

    >>> labels = np.random.default_rng(0).integers(1000, size=5000)
    >>> noise = UnigramNoise(counts=np.bincount(labels, minlength=1000))
    >>> layer = kc.CANESoftmax(1000, sampling=kc.Sampling(noise=noise))

    Args:
        counts: Array `(num_classes,)` of non-negative numbers, not all 0: how
            often each class is a label.
        power: Number from 0 to 1, the exponent of counts. 0 draws all counted
            classes alike, and 1 by their counts. Defaults to `0.75`.

    Raises:
        ValueError: If a count is negative, or all are 0.

    References:
        - [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546), section 2.2
        - [Ji et al., 2015](https://arxiv.org/abs/1511.06909), section 3
    """

    def __init__(
        self, counts: ArrayLike, power: float = 0.75, **kwargs: object
    ):
        super().__init__(check_scores("counts", counts), **kwargs)
        self.power = check_fraction("power", power, zero=True)
        require(
            self.counts.any(),
            "`counts` must not be zero for every class.",
            counts=counts,
        )

    def first_table(self):
        # Divide by the largest count, so that powers do not overflow.
        shares = (self.counts / self.counts.max()) ** self.power
        # NumPy has 0 ** 0 = 1.
        shares = np.where(self.counts > 0, shares, 0)
        weights = np.rint(shares * (TOTAL_WEIGHT / shares.sum()))
        weights = np.where(self.counts > 0, np.maximum(weights, 1), 0)
        return np.append(0, np.cumsum(weights.astype("int64")))

    def load_own_variables(self, store: dict) -> None:
        """Keeps the table, as counts are part of the config."""


def check_fraction(name, value, zero=False):
    """Returns `value` as a `float`, or raises if it is not from 0 to 1."""
    value = check_positive_number(name, value, zero)
    require(value <= 1, f"`{name}` must be at most 1.", **{name: value})
    return value


@keras.saving.register_keras_serializable(package="keras_compembed")
class LearnedNoise(TableNoise):
    """Draws classes by how often they were labels that candidates missed.

    The distribution adapts in training, and lowers the variance of the loss. A
    part of the probability is the same for all classes. That part is
    `smoothing`, or more while few misses have been counted.

    Example:

    >>> layer = kc.CANESoftmax(1000, sampling=kc.Sampling(noise="learned"))

    Args:
        power: Number from 0 to 1, the exponent of counts. Defaults to `1.0`.
        smoothing: Number above 0, up to 1, the least part of the probability
            that is the same for all classes. Defaults to `0.1`.
        refresh_every: Positive integer, steps between updates of the
            distribution. Defaults to `100`.
        decay: Number above 0, up to 1. Each step multiplies counts by it; 1.0
            gives plain counts. Defaults to `0.9999`.
        counts: Optional array `(num_classes,)` of non-negative numbers, the
            initial counts of misses. Defaults to `None`: uniform.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 8
        - [Witten & Bell, 1991](https://doi.org/10.1109/18.87000), method C
    """

    _settings = "power", "smoothing", "refresh_every", "decay"

    def __init__(
        self,
        power: float = 1.0,
        smoothing: float = 0.1,
        refresh_every: int = 100,
        decay: float = 0.9999,
        counts: ArrayLike | None = None,
        **kwargs: object,
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
        # Steps since the last update of the table.
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
        # Counts decay only when the table is updated. Until then, a new miss
        # gets more weight instead, and a step touches few counts.
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


NOISES = {"uniform": UniformNoise, "learned": LearnedNoise}
