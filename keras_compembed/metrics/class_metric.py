"""What metrics over many classes have in common."""

import keras
import tensorflow as tf

from keras_compembed.layers.class_output import read_examples
from keras_compembed.layers.class_output import unflat


class ClassMetric(keras.metrics.Mean):
    """Base of means over examples of a layer such as `CANESoftmax`.

    Examples that are masked do not count.
    """

    def values(self, examples):
        """One number for each example.

        Args:
            examples: `ClassExamples`.

        Returns:
            Tensor `(rows,)`, boolean or float32.
        """
        raise NotImplementedError

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
        if examples is None:
            return
        values = tf.cast(self.values(examples), "float32")
        values = unflat(values, y_pred)
        mask = getattr(y_pred, "_keras_mask", None)
        if mask is not None:
            values._keras_mask = mask
            if sample_weight is None:
                # Keras heeds masks only where there are weights.
                sample_weight = tf.ones_like(values)
        super().update_state(values, sample_weight=sample_weight)
