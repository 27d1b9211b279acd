"""The base of metrics that rank all classes."""

import keras

from keras_compembed.metrics.class_metric import ClassMetric
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int


class RankingMetric(ClassMetric):
    """Base of means over examples that ranks of all classes are needed for."""

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
