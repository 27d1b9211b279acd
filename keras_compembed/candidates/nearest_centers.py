"""Candidates of alike examples: the best classes of the nearest centers."""

import keras
import tensorflow as tf

from keras_compembed.candidates.candidate_groups import CandidateGroups
from keras_compembed.candidates.selector import Selector
from keras_compembed.candidates.sorted_sets import is_in
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.optimizers.device_rows import write
from keras_compembed.utils.validation import check_positive_int

# Share of what was known of features that is left after a step.
_KEPT = 0.98
# Centers with less than this share of a mean center's examples are moved.
_FEW = 0.2


@keras.saving.register_keras_serializable(package="keras_compembed")
class NearestCenters(Selector):
    """The classes of the highest scores for the center nearest to an example.

    Centers of features are learned as training goes, and each has the classes
    as candidates that score highest for it. Examples near a center share
    them, so that scores are matrix products: see `CandidateGroups`. A step
    costs little more than one with the same candidates for all, and
    candidates still depend on the example.

    Centers move to the mean of the features that were nearest to them, by
    k-means on the batches of the last hundred steps or so; those that
    hardly any example is near to take half of the examples of the largest.
    Their candidates are looked up after the first step, the second, the
    fourth and so on, and after each `refresh_every` steps, among all classes:
    about `2 * num_centers * num_classes * width` operations. What a step
    learns counts from the next step on: the candidates of an example depend
    on its own features and on earlier steps, never on other examples beside
    it. In a language model these would tell the label.

    Together with classes that all examples have as candidates (`Union`),
    centers take the best of the others.

    Prediction scores all classes, or searches as `selector` does.

    Example:

    >>> selector = kc.candidates.NearestCenters(num_centers=32)
    >>> head = kc.CANESoftmax(
    ...     100_000,
    ...     selector=selector,
    ...     num_candidates=50,
    ...     num_noises=500,
    ...     share_noises=True,
    ... )

    Args:
        num_centers: Integer. With more, candidates suit an example better,
            and fewer examples share them. Defaults to `64`.
        selector: Optional `Selector`, whose `top_k` looks for the classes of
            the centers, and for those of predictions: with a `BeamTree`, a
            search for each center in place of one for each example.
            Defaults to `None`, scores of all classes.
        refresh_every: Optional integer, steps until candidates are looked up
            anew. Defaults to `None`: 100, or `num_classes / 500` if that is
            more.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if a number is not positive, or `selector` is not a
            `Selector`.

    References:
        - [Sculley, 2010](https://doi.org/10.1145/1772690.1772862), for
          k-means on batches
    """

    def __init__(
        self, num_centers=64, selector=None, refresh_every=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_centers = check_positive_int("num_centers", num_centers)
        if selector is not None and not isinstance(selector, Selector):
            raise ValueError(
                "`selector` must be a `keras_compembed.candidates.Selector`. "
                f"Received: selector={selector!r}."
            )
        if refresh_every is not None:
            check_positive_int("refresh_every", refresh_every)
        self.selector = selector
        self.refresh_every = refresh_every

    @property
    def tree(self):
        return None if self.selector is None else self.selector.tree

    def attach(self, num_classes, num_candidates):
        super().attach(num_classes, num_candidates)
        if self.selector is not None:
            self.selector.attach(num_classes, num_candidates)
        self._period = self.refresh_every or max(100, num_classes // 500)

    def build(self, input_shape):
        if self.built:
            return
        if self.selector is not None:
            self.selector.build(input_shape)
        width = input_shape[-1]
        self.centers = self._add(
            "centers",
            (self.num_centers, width),
            keras.initializers.RandomNormal(stddev=1.0, seed=0),
        )
        # Sums over the examples of each center, those of earlier steps the
        # less: of features, of their squares, and of examples.
        self.totals = self._add("totals", (self.num_centers, width + 2))
        self.candidates = self._add(
            "candidates",
            (self.num_centers, self.num_candidates),
            lambda shape, dtype: tf.fill(shape, -1),
            "int32",
        )
        # Steps of training so far.
        self.age = self._add("age", (), dtype="int32")
        self.built = True

    def _add(self, name, shape, initializer="zeros", dtype="float32"):
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=False,
            autocast=False,
        )

    def _before_step(self, scores, features):
        if self.selector is not None:
            self.selector._before_step(scores, features)

    def select(self, scores, features, context=None):
        centers = own_value(self.centers)
        ids = own_value(self.candidates)
        return CandidateGroups(_nearest(features, centers), ids)

    def observe(self, scores, features, shared):
        centers, totals = self._moved(features)
        write(self.centers, centers)
        write(self.totals, totals)
        age = own_value(self.age) + 1
        write(self.age, age)
        power_of_two = tf.equal(tf.bitwise.bitwise_and(age, age - 1), 0)
        tf.cond(
            power_of_two | tf.equal(age % self._period, 0),
            lambda: self.refresh(scores, shared),
            lambda: None,
        )

    def after_step(self, scores, labels, hit):
        if self.selector is not None:
            self.selector.after_step(scores, labels, hit)

    def refresh(self, scores, shared=None):
        """Looks the candidates of all centers up by the present scores.

        Training does it of itself.

        Args:
            scores: `ClassScores` of the layer that this belongs to, its
                `scores`.
            shared: Optional int32 tensor `(ids,)`, classes to leave out, as
                they are candidates of all examples.
        """
        wanted = self.num_candidates
        if shared is not None:
            wanted = min(wanted + shared.shape[0], self.num_classes)
        centers = own_value(self.centers)
        ids, _, _ = self.top_k(scores, centers, wanted)
        if shared is not None:
            rows = tf.zeros((self.num_centers,), "int32")
            ids = tf.where(is_in(shared[None], ids, rows), -1, ids)
            # The others first, in their order.
            order = tf.argsort(tf.cast(ids < 0, "int32"), axis=1, stable=True)
            ids = tf.gather(ids, order, batch_dims=1)
            missing = max(0, self.num_candidates - wanted)
            ids = tf.pad(ids, [[0, 0], [0, missing]], constant_values=-1)
        write(self.candidates, ids[:, : self.num_candidates])

    def top_k(self, scores, features, k):
        search = super() if self.selector is None else self.selector
        return search.top_k(scores, features, k)

    def _moved(self, features):
        """Centers and totals after a step of k-means with these features."""
        centers = own_value(self.centers)
        usable = tf.reduce_all(tf.math.is_finite(features), axis=1)
        features = tf.where(usable[:, None], features, 0.0)
        nearest = tf.where(usable, _nearest(features, centers), -1)
        squares = tf.reduce_sum(features**2, axis=1, keepdims=True)
        rows = tf.concat([features, squares, tf.ones_like(squares)], axis=1)
        members = tf.one_hot(nearest, self.num_centers)
        sums = sum_over_devices(tf.matmul(members, rows, transpose_a=True))
        totals = _KEPT * own_value(self.totals) + sums
        known = totals[:, -1:] > 0
        means = tf.math.divide_no_nan(totals, totals[:, -1:])
        centers = tf.where(known, means[:, :-2], centers)
        return self._halved(centers, means[:, -2], totals)

    def _halved(self, centers, squares, totals):
        """Centers of few examples take half of those of the largest."""
        pairs, width = self.num_centers // 2, centers.shape[1]
        if not pairs:
            return centers, totals
        weights = totals[:, -1]
        order = tf.argsort(weights, stable=True)
        small, large = order[:pairs], order[::-1][:pairs]
        few = _FEW * tf.reduce_mean(weights)
        move = tf.gather(weights, small) < few
        move &= tf.gather(weights, large) > 2 * few
        # To both sides of the mean, as far away as examples are.
        variances = squares - tf.reduce_sum(centers**2, axis=1)
        aside = tf.sqrt(tf.maximum(tf.gather(variances, large), 0) / width)
        seed = tf.stack([own_value(self.age), 0])
        shifts = tf.random.stateless_normal((pairs, width), seed)
        shifts *= 0.5 * aside[:, None]
        middle = tf.gather(centers, large)
        half = tf.gather(totals, large) / 2
        for ids, centers_of in (
            (small, middle + shifts),
            (large, middle - shifts),
        ):
            ids = tf.where(move, ids, self.num_centers)
            centers = _with_rows(centers, ids, centers_of)
            moved = tf.concat(
                [
                    centers_of * half[:, -1:],
                    half[:, -2:],
                ],
                axis=1,
            )
            totals = _with_rows(totals, ids, moved)
        return centers, totals

    def get_config(self):
        return {
            **super().get_config(),
            "num_centers": self.num_centers,
            "selector": (
                None
                if self.selector is None
                else keras.saving.serialize_keras_object(self.selector)
            ),
            "refresh_every": self.refresh_every,
        }

    @classmethod
    def from_config(cls, config):
        selector = config.get("selector")
        if selector is not None:
            selector = keras.saving.deserialize_keras_object(selector)
        return cls(**{**config, "selector": selector})


def _nearest(features, centers):
    """The center at the least distance from each row."""
    near = tf.matmul(features, centers, transpose_b=True)
    near -= 0.5 * tf.reduce_sum(centers**2, axis=1)
    return tf.argmax(near, axis=1, output_type="int32")


def _with_rows(table, ids, rows):
    """A table with other rows; ids that are its number of rows are left out."""
    padded = tf.pad(table, [[0, 1], [0, 0]])
    padded = tf.tensor_scatter_nd_update(padded, ids[:, None], rows)
    return padded[:-1]
