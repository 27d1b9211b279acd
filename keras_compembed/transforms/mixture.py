"""Weights of anchors from rows of a transform."""

import keras
import tensorflow as tf

from keras_compembed.transforms.activations import ACTIVATIONS
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class Mixture:
    """Sets of anchors, of which each vector takes weights set by set.

    Softmax makes every weight positive, though still of few numbers; the
    others give exact zeros.

    Example:

    >>> mixture = Mixture(2, "sparsemax")
    >>> rows = tf.constant([[0.0, 3.0, 0.0, 0.0]])
    >>> mixture(rows, segments=(2, 2)).numpy()
    array([[0. , 1. , 0.5, 0.5]], dtype=float32)

    Args:
        num_sets: Integer. Number of sets that anchors are divided into.
            Defaults to `1`.
        activation: `None`, `"softmax"`, `"sparsemax"` or `"entmax"`. Defaults
            to `None`: rows of T are the weights.

    Raises:
        ValueError: if `num_sets` is not a positive integer, or `activation`
            is unknown.
    """

    def __init__(self, num_sets=1, activation=None):
        self.num_sets = check_positive_int("num_sets", num_sets)
        self.activation = check_choice(
            "activation", activation, (None, *ACTIVATIONS)
        )

    def __call__(self, rows, segments):
        """Weights of anchors, each segment of columns by itself."""
        if self.activation is None:
            return rows
        function = ACTIVATIONS[self.activation]
        parts = tf.split(rows, segments, axis=1)
        return tf.concat([function(part) for part in parts], axis=1)

    def get_config(self):
        return {"num_sets": self.num_sets, "activation": self.activation}

    @classmethod
    def from_config(cls, config):
        return cls(**config)
