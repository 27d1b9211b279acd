"""Metrics over many classes."""

import math

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.classes.class_head import ClassExamples
from keras_compembed.classes.class_head import read_examples
from keras_compembed.classes.class_head import unflat
from keras_compembed.utils.saving import PackedConfig
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_label
from keras_compembed.utils.validation import check_one_a_class
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_scores


class ClassMetric(PackedConfig, keras.metrics.Mean):
    """Base of metrics that average over examples of a `CANESoftmax`."""

    # Keras callbacks read here whether higher or lower is better.
    _direction = "up"
    _settings = ("ignore_class",)
    default_name = None

    def __init__(
        self,
        name: str | None = None,
        dtype: str | None = None,
        ignore_class: int | None = None,
    ):
        super().__init__(name=name or self.default_name, dtype=dtype)
        self.ignore_class = check_label("ignore_class", ignore_class)

    def values(self, examples: ClassExamples) -> tf.Tensor:
        """One value for each example."""
        raise NotImplementedError

    def skips(self, examples: ClassExamples) -> tf.Tensor | None:
        """Whether to skip the examples of this step."""
        return False

    def importance(self, examples: ClassExamples) -> tf.Tensor | None:
        """Weights of examples in the mean, or None for equal weights."""
        return None

    def update_state(self, y_true, y_pred, sample_weight=None):
        examples = read_examples(y_true, y_pred, type(self).__name__)
        if examples is None or self.skips(examples):
            return
        values = tf.cast(self.values(examples), "float32")
        values = unflat(values, y_pred)
        importance = self.importance(examples)
        if importance is not None:
            importance = unflat(importance, y_pred)
            sample_weight = _times(importance, sample_weight)
        mask = getattr(y_pred, "_keras_mask", None)
        if self.ignore_class is not None:
            counted = examples.counted(self.ignore_class)
            counted = unflat(counted, y_pred)
            mask = counted if mask is None else mask & counted
        if mask is not None:
            values._keras_mask = mask
            if sample_weight is None:
                # Keras ignores masks without weights.
                sample_weight = tf.ones_like(values)
        super().update_state(values, sample_weight=sample_weight)


@keras.saving.register_keras_serializable(package="keras_compembed")
class ClassAccuracy(ClassMetric):
    """Top-`k` accuracy: share of labels among the `k` best classes.

    Use it in place of Keras's `"accuracy"`, which a `CANESoftmax` rejects.
    Evaluation ranks all classes. A training step scores only a few classes; an
    example then counts if its label is the best candidate, for any `k`.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile(
    ...     "adam",
    ...     loss=kc.CANELoss(),
    ...     metrics=[kc.ClassAccuracy(k=5), kc.Coverage(), kc.Perplexity()],
    ... )

    Args:
        k: Integer. Defaults to `1`.
        name: Optional string. Defaults to `None`: `"accuracy"`, or for a
            larger `k` e.g. `"top_5_accuracy"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.

    Raises:
        ValueError: If `y_pred` is not the output of a `CANESoftmax`.
    """

    _settings = "k", "ignore_class"

    def __init__(
        self,
        k: int = 1,
        name: str | None = None,
        dtype: str | None = None,
        ignore_class: int | None = None,
    ):
        self.k = check_positive_int("k", k)
        default = "accuracy" if k == 1 else f"top_{k}_accuracy"
        super().__init__(name or default, dtype, ignore_class)

    def values(self, examples):
        if examples.training:
            return examples.draw().best & examples.in_range
        _, ranks = examples.exact()
        return (ranks < self.k) & examples.in_range


@keras.saving.register_keras_serializable(package="keras_compembed")
class Coverage(ClassMetric):
    """Share of examples with their label among the candidates.

    The higher it is, the closer `CANELoss` is to the softmax (Corollary 1).

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", kc.CANELoss(), metrics=[kc.Coverage()])

    Args:
        name: Optional string. Defaults to `None`: `"coverage"`.
        dtype, ignore_class: Same as for `ClassAccuracy`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), Table 3
    """

    default_name = "coverage"

    def values(self, examples):
        return examples.draw().hit & examples.in_range


@keras.saving.register_keras_serializable(package="keras_compembed")
class Perplexity(ClassMetric):
    """Perplexity, the exponential of the mean cross-entropy.

    Evaluation scores all classes. In training, the loss estimates the
    cross-entropy from the classes drawn.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", kc.CANELoss(), metrics=[kc.Perplexity()])

    Args:
        name: Optional string. Defaults to `None`: `"perplexity"`.
        dtype, ignore_class: Same as for `ClassAccuracy`.
    """

    _direction = "down"
    default_name = "perplexity"

    def values(self, examples):
        if examples.training:
            return examples.draw().losses
        losses, _ = examples.exact()
        return losses

    def result(self):
        return tf.exp(super().result())


def _times(weights, others):
    """Weights times other weights, with one axis more or less, or None."""
    if others is None:
        return weights
    others = tf.cast(tf.convert_to_tensor(others), weights.dtype)
    if others.shape.rank > weights.shape.rank:
        others = tf.squeeze(others, -1)
    while others.shape.rank < weights.shape.rank:
        others = others[..., None]
    return weights * others


class RankingMetric(ClassMetric):
    """Base of metrics that need the ranks of labels among all classes."""

    _settings = "k", "in_training", "ignore_class"
    _excluded = None

    def __init__(
        self,
        k: int = 5,
        name: str | None = None,
        dtype: str | None = None,
        ignore_class: int | None = None,
        in_training: bool = False,
    ):
        self.k = check_positive_int("k", k)
        self.in_training = check_boolean("in_training", in_training)
        super().__init__(name or f"{self.prefix}_at_{k}", dtype, ignore_class)

    def update_state(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        exclude: tf.Tensor | None = None,
    ) -> None:
        """Adds the examples of a batch to the metric.

        Args:
            y_true: Labels, or lists of labels padded by -1.
            y_pred: The output of a layer such as `CANESoftmax`.
            sample_weight: Optional weights of examples.
            exclude: Optional integer tensor `(rows, n)`, classes to leave out
                of each example's ranking, such as items already seen, padded
                by -1. Defaults to `None`.
        """
        self._excluded = exclude
        try:
            super().update_state(y_true, y_pred, sample_weight)
        finally:
            self._excluded = None

    def _ranks(self, examples):
        return examples.label_ranks(self._excluded)

    def _hits(self, examples):
        hits = tf.cast(self._ranks(examples) < self.k, "float32")
        return tf.reduce_sum(hits, axis=1)

    def skips(self, examples):
        # Ranking costs as much as a full softmax.
        return examples.training and not self.in_training

    def result(self):
        # NaN after training steps.
        return self.total / keras.ops.cast(self.count, self.dtype)


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrecisionAtK(RankingMetric):
    """Precision at `k`: share of labels among the `k` best classes.

    It ranks all classes. In training logs it is NaN without `in_training`.

    Example:

    >>> head = kc.CANESoftmax(1000)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> for metric in (kc.PrecisionAtK(k=5), kc.RecallAtK(), kc.NDCGAtK()):
    ...     metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        k: Integer. Defaults to `5`.
        name: Optional string. Defaults to `None`: e.g. `"precision_at_5"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
        in_training: Boolean. Whether training steps count. Defaults to
            `False`.

    Raises:
        ValueError: If `y_pred` is not the output of a `CANESoftmax`.
    """

    prefix = "precision"

    def values(self, examples):
        return self._hits(examples) / self.k


@keras.saving.register_keras_serializable(package="keras_compembed")
class RecallAtK(RankingMetric):
    """Recall at `k`: share of an example's labels in the `k` best classes.

    Like `PrecisionAtK`, for evaluation only by default.

    Example:

    >>> head = kc.CANESoftmax(1000)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.RecallAtK(k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        k, dtype, ignore_class, in_training: Same as for `PrecisionAtK`.
        name: Optional string. Defaults to `None`: e.g. `"recall_at_5"`.
    """

    prefix = "recall"

    def values(self, examples):
        exists = tf.cast(examples.label_lists() >= 0, "float32")
        number = tf.maximum(tf.reduce_sum(exists, axis=1), 1.0)
        return self._hits(examples) / number


@keras.saving.register_keras_serializable(package="keras_compembed")
class NDCGAtK(RankingMetric):
    """Normalized discounted cumulative gain (NDCG) of the `k` best classes.

    Like `PrecisionAtK`, for evaluation only by default.

    Example:

    >>> head = kc.CANESoftmax(1000)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.NDCGAtK(k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        k, dtype, ignore_class, in_training: Same as for `PrecisionAtK`.
        name: Optional string. Defaults to `None`: e.g. `"ndcg_at_5"`.
    """

    prefix = "ndcg"

    def values(self, examples):
        ranks = self._ranks(examples)
        exists = examples.label_lists() >= 0
        # The ideal order has the labels first.
        best = tf.cumsum(tf.cast(exists, "int32"), axis=1) - 1
        best = tf.where(exists, best, tf.int32.max)
        gain = tf.reduce_sum(self._gains(ranks), axis=1)
        return tf.math.divide_no_nan(
            gain, tf.reduce_sum(self._gains(best), axis=1)
        )

    def _gains(self, ranks):
        gains = tf.math.log(2.0) / tf.math.log(tf.cast(ranks, "float32") + 2.0)
        return tf.where(ranks < self.k, gains, 0.0)


@keras.saving.register_keras_serializable(package="keras_compembed")
class PropensityScoredPrecisionAtK(RankingMetric):
    """Precision at `k` that gives more weight to rare labels.

    Each label has a weight, the inverse of its propensity:
    `1 + (log(N) - 1) * (b + 1)**a * (n + b)**-a`, for a label of `n` of `N`
    training examples. The metric is the weight of the labels among the `k`
    best classes, divided by the largest possible weight of `k` labels. Both
    are summed over all examples.

    Like `PrecisionAtK`, for evaluation only by default.

    Example:

    >>> counts = np.arange(1000, 0, -1)
    >>> head = kc.CANESoftmax(1000, class_counts=counts)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.PropensityScoredPrecisionAtK(counts, 20_000, k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        class_counts: Array `(num_classes,)`, how often each class is a label
            in the training data.
        num_examples: Integer, at least 3. The number of training examples.
        a, b: Positive numbers. Default to `0.55` and `1.5`. The paper uses 0.5
            and 0.4 for Wikipedia, and 0.6 and 2.6 for Amazon.
        name: Optional string. Defaults to `None`: e.g.
            `"propensity_scored_precision_at_5"`.
        k, dtype, ignore_class, in_training: Same as for `PrecisionAtK`.

    Raises:
        ValueError: If an argument is invalid, or counts do not fit the layer.

    References:
        - [Jain et al., 2016](https://doi.org/10.1145/2939672.2939756),
          equation 2 and section 4
    """

    prefix = "propensity_scored_precision"
    _settings = *RankingMetric._settings, "num_examples", "a", "b"
    _arrays = ("class_counts",)

    def __init__(
        self,
        class_counts: ArrayLike,
        num_examples: int,
        k: int = 5,
        a: float = 0.55,
        b: float = 1.5,
        name: str | None = None,
        dtype: str | None = None,
        ignore_class: int | None = None,
        in_training: bool = False,
    ):
        self.class_counts = check_scores("class_counts", class_counts)
        self.num_examples = check_positive_int(
            "num_examples", num_examples, minimum=3
        )
        check_positive_number("a", a)
        check_positive_number("b", b)
        self.a, self.b = a, b
        scale = (math.log(num_examples) - 1) * (b + 1) ** a
        weights = 1 + scale * (self.class_counts + b) ** -a
        self._weights = np.asarray(weights, "float32")
        super().__init__(k, name, dtype, ignore_class, in_training)

    def values(self, examples):
        weights = self._weights_of(examples)
        hits = self._ranks(examples) < self.k
        found = tf.reduce_sum(tf.where(hits, weights, 0.0), axis=1)
        return tf.math.divide_no_nan(found, self.importance(examples))

    def importance(self, examples: ClassExamples) -> tf.Tensor:
        """The largest possible weight of each example's labels."""
        weights = self._weights_of(examples)
        number = min(self.k, weights.shape[1])
        return tf.reduce_sum(tf.math.top_k(weights, number)[0], axis=1)

    def _weights_of(self, examples):
        """The weight of each label, 0 for padding."""
        num_classes = examples.head.num_classes
        check_one_a_class("class_counts", self._weights, num_classes)
        labels = examples.label_lists()
        weights = tf.gather(self._weights, tf.maximum(labels, 0))
        return tf.where(labels >= 0, weights, 0.0)
