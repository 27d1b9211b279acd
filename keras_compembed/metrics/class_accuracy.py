"""How often the label is among the best classes."""

import keras

from keras_compembed.metrics.class_metric import ClassMetric
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class ClassAccuracy(ClassMetric):
    """Share of examples whose label is among the `k` classes scored highest.

    In evaluation, of all classes, which the loss has scored in any case. In
    training only a few classes are scored; there it is the share of examples
    whose label is among the candidates and above them, whatever `k`.

    Keras's `"accuracy"` is not for models that end in a `CANESoftmax`, which
    refuses it: it would compare labels with features.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile(
    ...     "adam",
    ...     loss=kc.CANELoss(),
    ...     metrics=[kc.ClassAccuracy(), kc.ClassAccuracy(k=5)],
    ... )

    Args:
        k: Integer. Defaults to `1`.
        name: Optional string. Defaults to `None`: `"accuracy"`, or for a
            larger `k` e.g. `"top_5_accuracy"`.
        dtype: Optional dtype, same as for `keras.metrics.Metric`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.

    Raises:
        ValueError: if `k` is not a positive integer.
    """

    def __init__(self, k=1, name=None, dtype=None, ignore_class=None):
        self.k = check_positive_int("k", k)
        default = "accuracy" if k == 1 else f"top_{k}_accuracy"
        super().__init__(name or default, dtype, ignore_class)

    def values(self, examples):
        if examples.training:
            return examples.draw().best & examples.in_range
        _, ranks = examples.exact()
        return (ranks < self.k) & examples.in_range

    def get_config(self):
        return {**super().get_config(), "k": self.k}
