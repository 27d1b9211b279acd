"""Perplexity over all classes."""

import keras
import tensorflow as tf

from keras_compembed.metrics.class_metric import ClassMetric


@keras.saving.register_keras_serializable(package="keras_compembed")
class Perplexity(ClassMetric):
    """The exponential of the mean cross-entropy.

    In evaluation that over all classes; in training that of the loss's
    estimate from the classes drawn.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", kc.CANELoss(), metrics=[kc.Perplexity()])

    Args:
        name: String. Defaults to `"perplexity"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
    """

    _direction = "down"

    def __init__(self, name="perplexity", dtype=None, ignore_class=None):
        super().__init__(name, dtype, ignore_class)

    def values(self, examples):
        if examples.training:
            return examples.draw().losses
        losses, _ = examples.exact()
        return losses

    def result(self):
        return tf.exp(super().result())
