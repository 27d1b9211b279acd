"""The base of metrics that rank all classes."""

import keras

from keras_compembed.metrics.class_metric import ClassMetric
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int


class RankingMetric(ClassMetric):
    """Base of means over examples that ranks of all classes are needed for.

    Steps of training do not count, unless asked for: they score a few classes
    only. Where no example counts, the mean is NaN.

    Attributes:
        prefix: String, what a name by default begins with.

    Args:
        k: Integer. Defaults to `5`.
        name: Optional string. Defaults to `None`: e.g. `"recall_at_5"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Same as for `ClassMetric`. Defaults to `None`.
        in_training: Boolean. Whether steps of training count. Defaults to
            `False`.
    """

    def __init__(
        self,
        k=5,
        name=None,
        dtype=None,
        ignore_class=None,
        in_training=False,
    ):
        self.k = check_positive_int("k", k)
        self.in_training = check_boolean("in_training", in_training)
        name = name or f"{self.prefix}_at_{k}"
        super().__init__(name, dtype, ignore_class)

    def skips(self, examples):
        return examples.training and not self.in_training

    def result(self):
        count = keras.ops.cast(self.count, self.dtype)
        return keras.ops.divide(self.total, count)

    def get_config(self):
        return {
            **super().get_config(),
            "k": self.k,
            "in_training": self.in_training,
        }
