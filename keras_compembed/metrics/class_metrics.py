"""Metrics over many classes of what a loss has scored in any case."""

import keras
import tensorflow as tf

from keras_compembed.layers.class_head import read_examples
from keras_compembed.layers.flat_rows import unflat
from keras_compembed.utils.validation import check_label
from keras_compembed.utils.validation import check_positive_int


class ClassMetric(keras.metrics.Mean):
    """Base of means over examples of a layer such as `CANESoftmax`."""

    # By which Keras's callbacks know what is better.
    _direction = "up"

    def __init__(self, name, dtype=None, ignore_class=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = check_label("ignore_class", ignore_class)

    def values(self, examples):
        """One number for each of `ClassExamples`."""
        raise NotImplementedError

    def skips(self, examples):
        """Whether the examples of a step do not count."""
        return False

    def importance(self, examples):
        """What examples count in the mean, or None if all count alike."""
        return None

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Takes a batch of outputs of a layer of classes into account."""
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
                # Keras heeds masks only where there are weights.
                sample_weight = tf.ones_like(values)
        super().update_state(values, sample_weight=sample_weight)

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}


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
        dtype, ignore_class: Same as for `ClassAccuracy`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), Table 3
    """

    def __init__(self, name="coverage", dtype=None, ignore_class=None):
        super().__init__(name, dtype, ignore_class)

    def values(self, examples):
        return examples.draw().hit & examples.in_range


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
        dtype, ignore_class: Same as for `ClassAccuracy`.
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


def _times(weights, others):
    """Weights times others, if there are any, of one axis more or less."""
    if others is None:
        return weights
    others = tf.cast(tf.convert_to_tensor(others), weights.dtype)
    if others.shape.rank > weights.shape.rank:
        others = tf.squeeze(others, -1)
    while others.shape.rank < weights.shape.rank:
        others = others[..., None]
    return weights * others
