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

# What integer weights add up to, but for rounding.
TOTAL_WEIGHT = 1 << 38


class Noise(PackedConfig, keras.layers.Layer):
    """Base of the distributions that noise classes are sampled from."""

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.num_classes = None

    def attach(self, num_classes: int) -> None:
        """Tells the number of classes, before `build`."""
        check_unattached(self)
        self.num_classes = num_classes

    def weight_below(self, ids: tf.Tensor) -> tf.Tensor:
        """int64 weights of all classes below each id, in total up to 2**38."""
        raise NotImplementedError

    def class_at(self, weights: tf.Tensor) -> tf.Tensor:
        """The last class of which `weight_below` is at most a weight."""
        raise NotImplementedError

    def sample(
        self, bits: tf.Tensor, excluded: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Classes outside the excluded ones, with replacement; -1 for none."""
        # Of `bits` `(rows, noises)`, or `(noises,)` that all rows share; with
        # -1 where a row of `excluded` has fewer ids.
        weights, starts, left = self._cut_out(excluded)
        shared = bits.shape.rank == 1
        if shared:
            bits = bits[None]
        # The sign of the modulus is that of the divisor.
        places = tf.math.floormod(bits, tf.maximum(left, 1))
        # Where excluded classes were cut out, before this place.
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
        """Log probabilities that `sample` draws by; 0 where an id is -1."""
        _, _, left = self._cut_out(excluded)
        if ids.shape.rank == 1 and left.shape[0] == 1:
            left = left[0]
        logarithms = _log(self._weights(tf.maximum(ids, 0))) - _log(left)
        return tf.where(ids >= 0, tf.cast(logarithms, "float32"), 0.0)

    def _may_draw(self, ids):
        """Which classes `sample` may draw; negative ids are no classes."""
        return (ids >= 0) & (self._weights(tf.maximum(ids, 0)) > 0)

    def observe(self, labels: tf.Tensor, candidates_hit: tf.Tensor) -> None:
        """Called once in each step of training; ignores labels out of range."""
        # AutoGraph warns of a body that is a docstring alone.
        return

    def _weights(self, ids):
        after = tf.minimum(ids + 1, self.num_classes)
        return self.weight_below(after) - self.weight_below(ids)

    def _cut_out(self, excluded):
        """Weights of excluded classes by id, those below them, and the rest."""
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
        # Who holds the noise builds it.
        return None


def _log(weights):
    # At least 1: a label that was never counted has a finite loss.
    # float32 would be off by 1e-6 of numbers of size 20.
    return tf.math.log(tf.cast(tf.maximum(weights, 1), "float64"))


@keras.saving.register_keras_serializable(package="keras_compembed")
class UniformNoise(Noise):
    """All classes but the excluded ones are drawn alike."""

    def weight_below(self, ids):
        return tf.cast(ids, "int64")

    def class_at(self, weights):
        return tf.cast(weights, "int32")


def random_bits(seed, columns, rows=None):
    """Uniform integers over all of int64."""
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
    """Places in a random order, the same on all devices."""
    seed = tf.random.experimental.stateless_fold_in(tf.cast(seed, "int32"), 1)
    keys = tf.random.stateless_uniform(tf.shape(first), seed)
    return tf.argsort(tf.where(first, keys, 1.0 + keys))


class TableNoise(Noise):
    """Base of noises with a weight of its own for each class."""

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
        """What the table is before training."""
        raise NotImplementedError

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

    Classes that were never counted are never drawn; to have them drawn, add
    something to all counts.

    Example:

    >>> labels = np.random.default_rng(0).integers(1000, size=5000)
    >>> noise = UnigramNoise(counts=np.bincount(labels, minlength=1000))
    >>> layer = kc.CANESoftmax(1000, sampling=kc.Sampling(noise=noise))

    Args:
        counts: Array `(num_classes,)` of numbers of at least 0, not all 0: how
            often each class is a label.
        power: Number from 0, all that were counted alike, to 1, as often as
            counted. Defaults to `0.75`.

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
        # Of the largest count, so that no power overflows.
        shares = (self.counts / self.counts.max()) ** self.power
        # 0 ** 0 is 1.
        shares = np.where(self.counts > 0, shares, 0)
        weights = np.rint(shares * (TOTAL_WEIGHT / shares.sum()))
        weights = np.where(self.counts > 0, np.maximum(weights, 1), 0)
        return np.append(0, np.cumsum(weights.astype("int64")))

    def load_own_variables(self, store: dict) -> None:
        """Leaves the table: counts are settings, of the config."""


def check_fraction(name, value, zero=False):
    """Returns `value` as a `float`, or raises if it is not within 0 and 1."""
    value = check_positive_number(name, value, zero)
    require(value <= 1, f"`{name}` must be at most 1.", **{name: value})
    return value


@keras.saving.register_keras_serializable(package="keras_compembed")
class LearnedNoise(TableNoise):
    """Classes are drawn as often as they were labels outside the candidates.

    Labels that candidates missed are a sample of the mean of the
    distributions that would estimate the sum of other classes without
    variance. A part of the probability is spread evenly: `smoothing`, or,
    while little was observed, the share of different classes among all misses.

    Example:

    >>> layer = kc.CANESoftmax(1000, sampling=kc.Sampling(noise="learned"))

    Args:
        power: Number from 0 to 1, which counts of misses are raised to.
            Defaults to `1.0`.
        smoothing: Number above 0, up to 1: the least part that is spread
            evenly. Defaults to `0.1`.
        refresh_every: Positive integer, steps of training after which the
            table is made anew. Defaults to `100`.
        decay: Number above 0, up to 1: what counts are multiplied by in each
            step. Defaults to `0.9999`; 1.0 is plain counts.
        counts: Optional array `(num_classes,)` of numbers of at least 0,
            misses to start from. Defaults to none, which is uniform.

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


NOISES = {"uniform": UniformNoise, "learned": LearnedNoise}
