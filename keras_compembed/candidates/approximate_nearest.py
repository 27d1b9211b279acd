"""Candidates by inverted lists over the vectors of classes."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.inverted_lists import list_moments
from keras_compembed.candidates.inverted_lists import make_lists
from keras_compembed.candidates.selector import Selector
from keras_compembed.candidates.selector import best_of
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.optimizers.device_rows import write
from keras_compembed.utils.log_sums import without_nan
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number

_LEAST_PROBES = 8
# Classes that are looked at, for each that is wanted.
_CLASSES_A_CANDIDATE = 4
# Features point to some classes: their products with vectors differ more than
# those of random directions do.
_ALIGNED = 2.0
# Standard deviations above the mean at which the best of a list may be.
_DEVIATIONS = 2.0


@keras.saving.register_keras_serializable(package="keras_compembed")
class ApproximateNearest(Selector):
    """Looks for the classes of the highest scores in a few lists.

    Lists hold classes whose vectors and biases are near each other. For each
    example, the lists are opened whose best scores may be the highest, judged
    by the mean and the spread of their vectors. All classes in them are
    scored.
    There are no parameters besides those of the classes, and no tree has to
    be known.

    Lists follow the vectors: all classes are assigned anew in the first step,
    and then after each `refresh_every` steps of training. That takes about
    `2 * num_classes * num_lists * width` operations. Lists are of bounded
    length; classes for which there is no room go to the next nearest, so that
    each class is in one list. Once training is over, `refresh` brings them up
    to date for prediction.

    Example:

    >>> selector = kc.candidates.ApproximateNearest()
    >>> head = kc.CANESoftmax(num_classes=100_000, selector=selector)

    Args:
        num_lists: Optional integer. Defaults to `None`:
            `4 * sqrt(num_classes)`, or fewer, of 8 classes each.
        num_probes: Optional integer, lists to open for an example. More find
            more of the best classes, and take longer. Defaults to `None`: 8,
            or as many as hold 4 times the classes that are wanted.
        refresh_every: Optional integer, steps of training until classes are
            assigned anew. Defaults to `None`: 100, or `num_classes / 500` if
            that is more.
        capacity_factor: Number of at least 1, room of the lists for each
            class. With more, fewer classes are away from the list they are
            nearest to, and examples take longer. Defaults to `2.0`.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if a number is out of range; by `attach`, if there are
            more lists than classes, or `num_probes` lists cannot hold
            `num_candidates` classes.

    References:
        - [Johnson et al., 2017](https://arxiv.org/abs/1702.08734), for
          inverted lists
    """

    def __init__(
        self,
        num_lists=None,
        num_probes=None,
        refresh_every=None,
        capacity_factor=2.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value in (
            ("num_lists", num_lists),
            ("num_probes", num_probes),
            ("refresh_every", refresh_every),
        ):
            if value is not None:
                check_positive_int(name, value)
        check_positive_number("capacity_factor", capacity_factor)
        if capacity_factor < 1:
            raise ValueError(
                "`capacity_factor` must be at least 1. "
                f"Received: capacity_factor={capacity_factor}."
            )
        self.num_lists = num_lists
        self.num_probes = num_probes
        self.refresh_every = refresh_every
        self.capacity_factor = capacity_factor

    def attach(self, num_classes, num_candidates):
        super().attach(num_classes, num_candidates)
        number = self.num_lists
        if number is None:
            number = min(round(4 * math.sqrt(num_classes)), num_classes // 8)
            number = max(1, number)
        if number > num_classes:
            raise ValueError(
                "`num_lists` must be at most the number of classes. Received: "
                f"num_lists={number}, num_classes={num_classes}."
            )
        capacity = math.ceil(self.capacity_factor * num_classes / number)
        capacity = min(capacity, num_classes)
        probes = min(self.num_probes or number, number)
        if probes * capacity < num_candidates:
            raise ValueError(
                "The lists that are opened must have room for the candidates. "
                f"Received: num_probes={self.num_probes}, lists of up to "
                f"{capacity} classes, and num_candidates={num_candidates}."
            )
        self._shape = number, capacity
        self._period = self.refresh_every or max(100, num_classes // 500)

    def build(self, input_shape):
        if self.built:
            return
        number, capacity = self._shape
        first = np.arange(number * capacity).reshape(capacity, number).T
        self.lists = self.add_weight(
            name="lists",
            shape=(number, capacity),
            dtype="int32",
            initializer=lambda shape, dtype: np.where(
                first < self.num_classes, first, -1
            ),
            trainable=False,
        )
        # Means of vectors and, last, of biases.
        self.means = self.add_weight(
            name="means",
            shape=(number, input_shape[-1] + 1),
            dtype="float32",
            initializer="zeros",
            trainable=False,
            autocast=False,
        )
        # Variances around them: mean of those of vectors, and of biases.
        self.variances = self.add_weight(
            name="variances",
            shape=(number, 2),
            dtype="float32",
            initializer="zeros",
            trainable=False,
            autocast=False,
        )
        # Steps of training since classes were assigned; -1 before that was
        # ever done.
        self.age = self.add_weight(
            name="age",
            shape=(),
            dtype="int32",
            initializer=lambda shape, dtype: -1,
            trainable=False,
        )
        # Root of the mean square of what features hold.
        self.feature_scale = self.add_weight(
            name="feature_scale",
            shape=(),
            dtype="float32",
            initializer="ones",
            trainable=False,
            autocast=False,
        )
        self.built = True

    def select(self, scores, features, context=None):
        scale = _scale_over_devices(features)
        age = own_value(self.age)
        due = age >= self._period if self.trainable else False
        tf.cond(
            (age < 0) | due,
            lambda: self._assign(scores, scale, age < 0),
            lambda: None,
        )
        return self._best(scores, features, self.num_candidates)[0]

    def after_step(self, scores, labels, hit):
        write(self.age, own_value(self.age) + 1)

    def refresh(self, scores):
        """Assigns all classes by their present vectors.

        Training does it of itself. After that, or after vectors were set, it
        makes `top_k` find more.

        Args:
            scores: `ClassScores` of the layer that this belongs to, its
                `scores`.
        """
        self._assign(scores, self.feature_scale.value, self.age.value < 0)

    def top_k(self, scores, features, k):
        # Also where a function is traced that is to be exported.
        with tf.init_scope():
            if tf.executing_eagerly() and int(own_value(self.age)) < 0:
                self.refresh(scores)
        return self._best(scores, features, k)

    def _assign(self, scores, scale, first):
        """Makes the lists anew."""

        def parameters_of(ids):
            biases = scores.class_biases(ids)[:, None]
            return tf.concat([scores.class_vectors(ids), biases], axis=1)

        # What a difference counts in the scores of features of that scale.
        scales = tf.fill((self.means.shape[1] - 1,), _ALIGNED * scale)
        scales = tf.concat([scales, [1.0]], axis=0)
        lists = make_lists(
            lambda ids: scales * parameters_of(ids),
            self.num_classes,
            own_value(self.lists),
            first,
        )
        means, variances = list_moments(parameters_of, lists)
        of_vectors = tf.reduce_mean(variances[:, :-1], axis=1)
        write(self.lists, lists)
        write(self.means, means)
        write(self.variances, tf.stack([of_vectors, variances[:, -1]], axis=1))
        write(self.feature_scale, scale)
        write(self.age, 0)

    def order_of_lists(self, features, number):
        """The lists that may hold the highest scores, the likeliest first.

        Args:
            features: float32 tensor `(rows, width)`.
            number: Integer, how many lists.

        Returns:
            int32 tensor `(rows, number)` of rows of `lists`.
        """
        means = own_value(self.means)
        reach = tf.matmul(features, means[:, :-1], transpose_b=True)
        squares = tf.reduce_sum(features**2, axis=1, keepdims=True)
        squares = tf.concat([squares, tf.ones_like(squares)], axis=1)
        variances = tf.matmul(
            squares, own_value(self.variances), transpose_b=True
        )
        reach += means[:, -1] + _DEVIATIONS * tf.sqrt(variances)
        reach = without_nan(reach)
        empty = own_value(self.lists)[:, 0] < 0
        reach = tf.where(empty, float("-inf"), reach)
        return tf.math.top_k(reach, number)[1]

    def _best(self, scores, features, k):
        probes = self.order_of_lists(features, self._probes(k))
        found = [
            self._score_list(scores, features, rows)
            for rows in tf.unstack(probes, axis=1)
        ]
        ids, found = (
            tf.concat(part, axis=1) for part in zip(*found, strict=True)
        )
        return best_of(ids, found, k)

    def _probes(self, k):
        number, _ = self._shape
        if self.num_probes is not None:
            return min(self.num_probes, number)
        wanted = _CLASSES_A_CANDIDATE * k * number / self.num_classes
        return min(number, max(_LEAST_PROBES, math.ceil(wanted)))

    def _score_list(self, scores, features, rows):
        """Ids and scores of the classes of one list for each example."""
        ids = gather_rows(self.lists, rows)
        flat = tf.maximum(tf.reshape(ids, (-1,)), 0)
        vectors = scores.class_vectors(flat)
        vectors = tf.reshape(vectors, (-1, ids.shape[1], vectors.shape[1]))
        products = tf.linalg.matvec(vectors, features)
        products += tf.reshape(scores.class_biases(flat), tf.shape(ids))
        products = without_nan(products)
        return ids, tf.where(ids >= 0, products, float("-inf"))

    def get_config(self):
        return {
            **super().get_config(),
            "num_lists": self.num_lists,
            "num_probes": self.num_probes,
            "refresh_every": self.refresh_every,
            "capacity_factor": self.capacity_factor,
        }


def _scale_over_devices(features):
    """Root of the mean square of features, 1 if it is nothing."""
    squares = tf.reduce_sum(features**2)
    number = tf.cast(tf.size(features), "float32")
    squares, number = tf.unstack(sum_over_devices(tf.stack([squares, number])))
    scale = tf.sqrt(tf.math.divide_no_nan(squares, number))
    usable = tf.math.is_finite(scale) & (scale > 0)
    return tf.where(usable, scale, 1.0)
