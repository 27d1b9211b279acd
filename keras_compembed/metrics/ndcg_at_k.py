"""How far up labels are among the best classes."""

import keras
import tensorflow as tf

from keras_compembed.metrics.ranking_metric import RankingMetric


@keras.saving.register_keras_serializable(package="keras_compembed")
class NDCGAtK(RankingMetric):
    """Normalized discounted cumulative gain of labels in the `k` best classes.

    From the ranks of labels among all classes, in evaluation only: logs of
    training hold NaN.

    Example:

    >>> head = kc.CANESoftmax(1000)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.NDCGAtK(k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        k: Integer. Defaults to `5`.
        name: Optional string. Defaults to `None`: e.g. `"ndcg_at_5"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
        in_training: Boolean. Whether to rank in steps of training, where that
            costs as much as a full softmax. Defaults to `False`.

    Raises:
        ValueError: if `k` is not a positive integer.
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
