"""The base of metrics that rank all classes."""

import keras

from keras_compembed.layers.class_head import read_examples
from keras_compembed.metrics.class_metric import ClassMetric
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int


class RankingMetric(ClassMetric):
    """Base of means over examples that ranks of all classes are needed for.

    Steps of training do not count, unless asked for: they score a few classes
    only. Where no example counts, the mean is NaN.

    Args:
        k: Integer.
        name: String.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Same as for `ClassMetric`. Defaults to `None`.
        in_training: Boolean. Whether steps of training count. Defaults to
            `False`.
    """

    def __init__(
        self, k, name, dtype=None, ignore_class=None, in_training=False
    ):
        self.k = check_positive_int("k", k)
        self.in_training = check_boolean("in_training", in_training)
        super().__init__(name, dtype, ignore_class)

    def update_state(self, y_true, y_pred, sample_weight=None):
        examples = read_examples(y_true, y_pred, type(self).__name__)
        if examples is None or (examples.training and not self.in_training):
            return
        super().update_state(y_true, y_pred, sample_weight)

    def result(self):
        count = keras.ops.cast(self.count, self.dtype)
        return keras.ops.divide(self.total, count)

    def get_config(self):
        return {
            **super().get_config(),
            "k": self.k,
            "in_training": self.in_training,
        }
