"""Metrics of the ranks of labels among all classes."""

import keras
import tensorflow as tf

from keras_compembed.metrics.class_metrics import ClassMetric
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int


class RankingMetric(ClassMetric):
    """Base of means over examples that ranks of all classes are needed for."""

    def __init__(
        self, k=5, name=None, dtype=None, ignore_class=None, in_training=False
    ):
        self.k = check_positive_int("k", k)
        self.in_training = check_boolean("in_training", in_training)
        super().__init__(name or f"{self.prefix}_at_{k}", dtype, ignore_class)

    def skips(self, examples):
        # As much work as a full softmax.
        return examples.training and not self.in_training

    def result(self):
        # NaN after steps of training.
        return self.total / keras.ops.cast(self.count, self.dtype)

    def get_config(self):
        config = {"k": self.k, "in_training": self.in_training}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrecisionAtK(RankingMetric):
    """Share of the `k` classes scored highest that are labels.

    From the ranks of labels among all classes, in evaluation only: logs of
    training hold NaN without `in_training`.

    Example:

    >>> head = kc.CANESoftmax(1000)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.PrecisionAtK(k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        k: Integer. Defaults to `5`.
        name: Optional string. Defaults to `None`: e.g. `"precision_at_5"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
        in_training: Boolean. Whether steps of training count, too. Defaults
            to `False`.
    """

    prefix = "precision"

    def values(self, examples):
        hits = tf.cast(examples.label_ranks() < self.k, "float32")
        return tf.reduce_sum(hits, axis=1) / self.k


@keras.saving.register_keras_serializable(package="keras_compembed")
class RecallAtK(RankingMetric):
    """Share of the labels that are among the `k` classes scored highest.

    In evaluation only, as `PrecisionAtK`.

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
        hits = tf.cast(examples.label_ranks() < self.k, "float32")
        exists = tf.cast(examples.label_lists() >= 0, "float32")
        number = tf.maximum(tf.reduce_sum(exists, axis=1), 1.0)
        return tf.reduce_sum(hits, axis=1) / number


@keras.saving.register_keras_serializable(package="keras_compembed")
class NDCGAtK(RankingMetric):
    """Normalized discounted cumulative gain of labels in the `k` best classes.

    In evaluation only, as `PrecisionAtK`.

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
        ranks = examples.label_ranks()
        exists = examples.label_lists() >= 0
        # The best order has labels first.
        best = tf.cumsum(tf.cast(exists, "int32"), axis=1) - 1
        best = tf.where(exists, best, tf.int32.max)
        gain = tf.reduce_sum(self._gains(ranks), axis=1)
        return tf.math.divide_no_nan(
            gain, tf.reduce_sum(self._gains(best), axis=1)
        )

    def _gains(self, ranks):
        gains = tf.math.log(2.0) / tf.math.log(tf.cast(ranks, "float32") + 2.0)
        return tf.where(ranks < self.k, gains, 0.0)
