"""How often the candidates hold the label."""

import keras

from keras_compembed.metrics.class_metric import ClassMetric


@keras.saving.register_keras_serializable(package="keras_compembed")
class Coverage(ClassMetric):
    """Share of examples whose label is one of their candidates.

    What decides how near the estimates of `CANELoss` are to those of the
    softmax over all classes (Corollary 1).

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", kc.CANELoss(), metrics=[kc.Coverage()])

    Args:
        name: String. Defaults to `"coverage"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), Table 3
    """

    def __init__(self, name="coverage", dtype=None, ignore_class=None):
        super().__init__(name, dtype, ignore_class)

    def values(self, examples):
        return examples.draw().hit & examples.in_range
