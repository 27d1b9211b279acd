"""The base of metrics over many classes."""

import keras
import tensorflow as tf

from keras_compembed.layers.class_head import read_examples
from keras_compembed.layers.flat_rows import unflat
from keras_compembed.utils.validation import check_label


class ClassMetric(keras.metrics.Mean):
    """Base of means over examples of a layer such as `CANESoftmax`."""

    # By which Keras's callbacks know what is better.
    _direction = "up"

    def __init__(self, name, dtype=None, ignore_class=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = check_label("ignore_class", ignore_class)

    def values(self, examples):
        """One number for each example.

        Args:
            examples: `ClassExamples`.

        Returns:
            Tensor `(rows,)`, boolean or float32.
        """
        raise NotImplementedError

    def skips(self, examples):
        """Whether the examples of a step do not count."""
        return False

    def importance(self, examples):
        """What examples count in the mean, or None if all count alike.

        Args:
            examples: `ClassExamples`.

        Returns:
            Tensor `(rows,)`, or None.
        """
        return None

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Takes a batch into account.

        Args:
            y_true: Integer labels.
            y_pred: The output of a model that ends in a layer of classes.
            sample_weight: Optional weights of examples.

        Raises:
            ValueError: if `y_pred` does not come from such a layer.
        """
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
