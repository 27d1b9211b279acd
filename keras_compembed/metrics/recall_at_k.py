"""How many of the labels are among the best classes."""

import keras
import tensorflow as tf

from keras_compembed.metrics.ranking_metric import RankingMetric


@keras.saving.register_keras_serializable(package="keras_compembed")
class RecallAtK(RankingMetric):
    """Share of the labels that are among the `k` classes scored highest.

    From the ranks of labels among all classes, in evaluation only: logs of
    training hold NaN.

    Example:

    >>> head = kc.CANESoftmax(1000)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.RecallAtK(k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        k: Integer. Defaults to `5`.
        name: Optional string. Defaults to `None`: e.g. `"recall_at_5"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
        in_training: Boolean. Whether to rank in steps of training, where that
            costs as much as a full softmax. Defaults to `False`.

    Raises:
        ValueError: if `k` is not a positive integer.
    """

    prefix = "recall"

    def values(self, examples):
        hits = tf.cast(examples.label_ranks() < self.k, "float32")
        exists = tf.cast(examples.label_lists() >= 0, "float32")
        number = tf.maximum(tf.reduce_sum(exists, axis=1), 1.0)
        return tf.reduce_sum(hits, axis=1) / number
