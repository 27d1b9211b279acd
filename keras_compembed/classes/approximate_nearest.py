"""Candidates by inverted lists over class vectors."""

import functools
import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.classes.class_scores import best_in_parts
from keras_compembed.classes.class_scores import best_of
from keras_compembed.classes.selectors import Selector
from keras_compembed.classes.tree_arrays import own_products
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.optimizers.device_rows import write
from keras_compembed.utils.tensor_ops import MOST_NUMBERS
from keras_compembed.utils.tensor_ops import without_nan
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require

_LEAST_PROBES = 8
# Classes to score for each class to return.
_CLASSES_A_CANDIDATE = 4
# Features align with some class vectors, so differences count more than those
# of random directions.
ALIGNED = 2.0


@keras.saving.register_keras_serializable(package="keras_compembed")
class ApproximateNearest(Selector):
    """Searches for the classes with the highest scores in a few lists.

    Classes with similar vectors and biases share a list of limited length. For
    each example, the most promising lists are opened, and all their classes
    are scored. The mean and spread of a list's vectors decide how promising it
    is. Every `refresh_every` training steps, classes are assigned to lists
    again. After training, `fit_search` makes lists for prediction.

    Example:

    >>> sampling = kc.Sampling(kc.classes.ApproximateNearest())
    >>> head = kc.CANESoftmax(100_000, sampling=sampling)

    Args:
        num_lists: Optional integer. Defaults to `None`:
            `4 * sqrt(num_classes)`, or fewer lists, of 8 classes each.
        num_probes: Optional integer, lists to open for an example. Defaults to
            `None`: at least 8, enough to score 4 classes for each one wanted.
        refresh_every: Optional integer, training steps between assignments of
            classes to lists. Defaults to `None`: 100, or `num_classes / 500`
            if that is more.
        capacity_factor: Number, at least 1. Capacity of all lists together,
            divided by the number of classes. Defaults to `2.0`.
        **kwargs: `name` of `keras.layers.Layer`.

    References:
        - [Johnson et al., 2017](https://arxiv.org/abs/1702.08734)
    """

    _settings = "num_lists", "num_probes", "refresh_every", "capacity_factor"

    def __init__(
        self,
        num_lists: int | None = None,
        num_probes: int | None = None,
        refresh_every: int | None = None,
        capacity_factor: float = 2.0,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        check_positive_int("num_lists", num_lists, optional=True)
        check_positive_int("num_probes", num_probes, optional=True)
        check_positive_int("refresh_every", refresh_every, optional=True)
        check_positive_number("capacity_factor", capacity_factor)
        require(
            capacity_factor >= 1,
            "`capacity_factor` must be at least 1.",
            capacity_factor=capacity_factor,
        )
        self.num_lists = num_lists
        self.num_probes = num_probes
        self.refresh_every = refresh_every
        self.capacity_factor = capacity_factor

    def attach(self, num_classes, num_candidates):
        super().attach(num_classes, num_candidates)
        number = self.num_lists or usual_lists(num_classes)
        check_positive_int("num_lists", number, maximum=num_classes)
        capacity = math.ceil(self.capacity_factor * num_classes / number)
        capacity = min(capacity, num_classes)
        require(
            min(self.num_probes or number, number) * capacity >= num_candidates,
            "`num_probes` lists must have room for `num_candidates` classes.",
            num_probes=self.num_probes,
            num_candidates=num_candidates,
            longest_list=capacity,
        )
        self._shape = number, capacity
        self._period = self.refresh_every or max(100, num_classes // 500)

    def build(self, input_shape):
        if self.built:
            return
        number, capacity = self._shape
        width = input_shape[-1] + 1
        first = np.arange(number * capacity).reshape(capacity, number).T
        first = np.where(first < self.num_classes, first, -1)
        self.lists = self._add_state("lists", first)
        # Means of vectors, then of biases in the last column.
        means = np.zeros((number, width))
        self.means = self._add_state("means", means, "float32")
        # The mean variance of vectors, and the variance of biases.
        variances = np.zeros((number, 2))
        self.variances = self._add_state("variances", variances, "float32")
        # Training steps since the last assignment; -1 before the first one,
        # -2 after an assignment before training.
        self.age = self._add_state("age", -1)
        # Root mean square of features.
        self.feature_scale = self._add_state("feature_scale", 1.0, "float32")

    def _before_step(self, scores, features):
        age = own_value(self.age)
        due = age >= self._period if self.trainable else False
        scale = _scale_over_devices(features)
        tf.cond(
            (age < 0) | due,
            lambda: self._assign(scores, scale, age < 0),
            lambda: None,
        )

    def select(self, scores, features, context=None):
        tf.cond(
            tf.equal(own_value(self.age), -1),
            lambda: self._assign_early(scores),
            lambda: None,
        )
        return self._best(scores, features, self.num_candidates)[0]

    def after_step(self, scores, labels, hit):
        write(self.age, own_value(self.age) + 1)

    def top_k(self, scores, features, k):
        # Also while a function is traced for export.
        with tf.init_scope():
            if tf.executing_eagerly() and int(own_value(self.age)) == -1:
                self._assign_early(scores)
        return self._best(scores, features, k)

    def _assign_early(self, scores):
        """Makes lists before training, which then makes them again."""
        scale = own_value(self.feature_scale)
        self._assign(scores, scale, tf.constant(True), -2)

    def _assign(self, scores, scale, first, age=0):
        """Assigns all classes to lists."""
        # Scale differences of vectors to their effect on scores.
        scales = tf.fill((self.means.shape[1] - 1,), ALIGNED * scale)
        scales = tf.concat([scales, [1.0]], axis=0)
        lists = make_lists(
            lambda ids: scales * _parameters(scores, ids),
            self.num_classes,
            own_value(self.lists),
            first,
        )
        self._keep_lists(scores, scale, lists, age)

    def _keep_lists(self, scores, scale, lists, age=0):
        """Keeps lists of classes, with their means and variances."""
        means, variances = list_moments(
            lambda ids: _parameters(scores, ids), lists
        )
        of_vectors = tf.reduce_mean(variances[:, :-1], axis=1)
        variances = tf.stack([of_vectors, variances[:, -1]], axis=1)
        numbers = tf.concat([means, variances], axis=1)
        usable = tf.reduce_all(tf.math.is_finite(numbers), axis=1)
        usable = (usable & (lists[:, 0] >= 0))[:, None]
        # Unusable lists come last for all features.
        closed = [0.0] * (means.shape[1] - 1) + [float("-inf")]
        write(self.lists, lists)
        write(self.means, tf.where(usable, means, closed))
        write(self.variances, tf.where(usable, variances, 0.0))
        write(self.feature_scale, scale)
        write(self.age, age)

    def _order_of_lists(self, features, number):
        """The most promising lists, best first."""
        means = own_value(self.means)
        # The squared expected maximum of this many normal numbers, roughly.
        deviations = 2 * math.log(max(2, self._shape[1]))
        squares = deviations * tf.reduce_sum(features**2, axis=1, keepdims=True)
        squares = tf.pad(squares, [[0, 0], [0, 1]], constant_values=deviations)
        variances = tf.matmul(
            squares, own_value(self.variances), transpose_b=True
        )
        reach = tf.matmul(features, means[:, :-1], transpose_b=True)
        reach += means[:, -1]
        return tf.math.top_k(reach + tf.sqrt(variances), number)[1]

    def _best(self, scores, features, k):
        number, length = self._shape
        wanted = _CLASSES_A_CANDIDATE * k * number / self.num_classes
        probes = self.num_probes or max(_LEAST_PROBES, math.ceil(wanted))
        lists = self._order_of_lists(features, min(number, probes))
        numbers = length * max(features.shape[1], lists.shape[1])
        compute = functools.partial(self._best_of_part, scores, k)
        size = max(1, MOST_NUMBERS // numbers)
        return best_in_parts(compute, (features, lists), k, size)

    def _best_of_part(self, scores, k, features, lists):
        number = lists.shape[1] * self._shape[1]
        ids = tf.reshape(gather_rows(self.lists, lists), (-1, number))
        flat = tf.maximum(tf.reshape(ids, (-1,)), 0)
        vectors = scores.class_vectors(flat)
        vectors = tf.reshape(vectors, (-1, number, features.shape[1]))
        products = own_products(vectors, features)
        products += tf.reshape(scores.class_biases(flat), tf.shape(ids))
        there = tf.where(ids >= 0, without_nan(products), float("-inf"))
        return best_of(ids, there, k)


def usual_lists(num_classes):
    """The default number of lists."""
    return max(1, min(round(4 * math.sqrt(num_classes)), num_classes // 8))


def _parameters(scores, ids):
    """Vectors of classes, with biases in the last column."""
    biases = scores.class_biases(ids)[:, None]
    return tf.concat([scores.class_vectors(ids), biases], axis=1)


def _scale_over_devices(features):
    """Root mean square of features, or 1 if it is 0 or not finite."""
    squares = tf.reduce_sum(features**2)
    number = tf.cast(tf.size(features), "float32")
    squares, number = tf.unstack(sum_over_devices(tf.stack([squares, number])))
    scale = tf.sqrt(tf.math.divide_no_nan(squares, number))
    usable = tf.math.is_finite(scale) & (scale > 0)
    return tf.where(usable, scale, 1.0)


# Array entries to process at a time.
_ENTRIES = 1 << 22
# k-means: sampled classes per list, and numbers of steps.
_SAMPLE = 32
_FIRST_STEPS = 10
_STEPS = 2
# Lists that a class may request before it gets any free place.
_CHOICES = 8


def make_lists(vectors_of, num_classes, lists, first):
    """Assigns all classes to lists by k-means."""
    num_lists, capacity = lists.shape
    size = min(num_classes, _SAMPLE * num_lists)
    sample = np.arange(size, dtype="int64") * num_classes // size
    points = vectors_of(tf.constant(sample, "int32"))
    seeds = np.arange(num_lists, dtype="int64") * size // num_lists
    centres = tf.cond(
        first,
        lambda: tf.gather(points, tf.constant(seeds, "int32")),
        lambda: list_moments(vectors_of, lists)[0],
    )
    steps = tf.where(first, _FIRST_STEPS, _STEPS)
    centres = k_means(points, centres, steps)
    choices, costs = _in_chunks(
        lambda ids: nearest(vectors_of(ids), centres, min(_CHOICES, num_lists)),
        num_classes,
        max(1, _ENTRIES // num_lists),
        (tf.int32, tf.float32),
    )
    places = deal(choices, costs, num_lists, capacity)
    counts = _counts(places, num_lists)
    starts = tf.cumsum(counts, exclusive=True)
    within = tf.range(capacity)
    index = tf.minimum(starts[:, None] + within, num_classes - 1)
    ids = tf.gather(tf.argsort(places, stable=True), index)
    return tf.where(within < counts[:, None], ids, -1)


def list_moments(vectors_of, lists):
    """Means and variances of vectors over lists of ids padded by -1."""
    capacity = lists.shape[1]

    def moments(rows):
        ids = tf.gather(lists, rows)
        there = (ids >= 0)[..., None]
        vectors = vectors_of(tf.maximum(tf.reshape(ids, (-1,)), 0))
        vectors = tf.reshape(vectors, (-1, capacity, vectors.shape[1]))
        counts = tf.reduce_sum(tf.cast(there, "float32"), axis=1)
        counts = tf.maximum(counts, 1)

        def mean(values):
            # Padding counts 0 times, even if it is NaN.
            values = tf.where(there, values, 0)
            return tf.reduce_sum(values, axis=1) / counts

        means = mean(vectors)
        return means, mean((vectors - means[:, None]) ** 2)

    size = max(1, _ENTRIES // (64 * capacity))
    dtypes = tf.float32, tf.float32
    return _in_chunks(moments, lists.shape[0], size, dtypes)


def k_means(points, centres, steps):
    rows, number = points.shape[0], centres.shape[0]
    spread = np.arange(number, dtype="int64") * rows // number
    spread = tf.constant(spread, "int32")

    def step(index, centres):
        own, _ = _in_chunks(
            lambda ids: nearest(tf.gather(points, ids), centres, 1),
            rows,
            max(1, _ENTRIES // number),
            (tf.int32, tf.float32),
        )
        own = own[:, 0]
        sums = tf.math.unsorted_segment_sum(points, own, number)
        counts = _counts(own, number)[:, None]
        means = sums / tf.maximum(tf.cast(counts, "float32"), 1)
        # A centre without points moves to one of the points.
        others = tf.gather(points, (spread + 7 * index + 1) % rows)
        return index + 1, tf.where(counts > 0, means, others)

    return tf.while_loop(
        lambda index, _: index < steps,
        step,
        (0, centres),
        parallel_iterations=1,
    )[1]


def nearest(points, centres, number):
    costs = tf.reduce_sum(centres**2, axis=1)
    costs -= 2 * tf.matmul(points, centres, transpose_b=True)
    # Vectors that are not finite may go to any list.
    costs = tf.where(tf.math.is_finite(costs), costs, costs.dtype.max / 4)
    costs, indices = tf.math.top_k(-costs, number)
    return indices, -costs


def deal(choices, costs, num_lists, capacity):
    """Assigns each class to a list, with at most `capacity` in each."""
    num_classes, number = choices.shape
    losses = costs[:, 1:] - costs[:, :-1]
    losses = tf.pad(losses, [[0, 0], [0, 1]])
    # Below 1, so that one sort orders by list and then by loss.
    losses = tf.cast(losses, "float64")
    most = tf.maximum(tf.reduce_max(losses), np.finfo("float32").tiny)
    urgency = 0.999 * (1 - losses / most)

    def ask(turn, places, room):
        wanted = tf.gather(choices, turn, axis=1)
        wanted = tf.where(places < 0, wanted, num_lists)
        key = tf.cast(wanted, "float64") + tf.gather(urgency, turn, axis=1)
        order = tf.argsort(key, stable=True)
        wanted = tf.gather(wanted, order)
        counts = _counts(wanted, num_lists + 1)
        before = tf.cumsum(counts, exclusive=True)
        rank = tf.range(num_classes) - tf.gather(before, wanted)
        taken = rank < tf.gather(tf.pad(room, [[0, 1]]), wanted)
        found = tf.where(taken, wanted, tf.gather(places, order))
        places = tf.scatter_nd(order[:, None], found, (num_classes,))
        return turn + 1, places, room - tf.minimum(room, counts[:-1])

    _, places, room = tf.while_loop(
        lambda turn, places, _: (turn < number) & tf.reduce_any(places < 0),
        ask,
        (0, tf.fill((num_classes,), -1), tf.fill((num_lists,), capacity)),
        parallel_iterations=1,
    )
    # The list of each free place: count the full lists before it.
    full = _counts(tf.cumsum(room), num_lists * capacity + 1)
    free = tf.cumsum(full)
    left = places < 0
    turn = tf.cumsum(tf.cast(left, "int32")) - 1
    return tf.where(left, tf.gather(free, tf.maximum(turn, 0)), places)


def _counts(values, number):
    """Counts of the integers below `number`."""
    ones = tf.ones_like(values)
    return tf.math.unsorted_segment_sum(ones, values, number)


def _in_chunks(function, number, size, dtypes):
    """Results of a function for all integers below `number`, in chunks."""
    size = min(size, number)
    parts = tf.map_fn(
        lambda start: function(tf.minimum(start + tf.range(size), number - 1)),
        tf.range(0, number, size),
        fn_output_signature=dtypes,
        parallel_iterations=1,
    )
    return tf.nest.map_structure(
        lambda part: tf.reshape(part, (-1, part.shape[2]))[:number], parts
    )
