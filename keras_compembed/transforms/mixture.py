"""Weights of anchors from rows of a transform."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int


def sparsemax(rows):
    """The points of the simplex nearest to rows: sums of 1, exact zeros."""
    order = tf.sort(tf.stop_gradient(rows), direction="DESCENDING")
    places = tf.range(1, tf.shape(rows)[1] + 1)
    places = tf.cast(places, rows.dtype)
    inside = 1 + places * order > tf.cumsum(order, axis=1)
    support, size = _support(rows, order, inside)
    total = tf.reduce_sum(support * rows, axis=1, keepdims=True)
    return tf.maximum(rows - (total - 1) / size, 0)


def entmax(rows):
    """1.5-entmax: between softmax and sparsemax, with exact zeros."""
    rows = rows / 2
    order = tf.sort(tf.stop_gradient(rows), direction="DESCENDING")
    places = tf.range(1, tf.shape(rows)[1] + 1)
    places = tf.cast(places, rows.dtype)
    mean = tf.cumsum(order, axis=1) / places
    mean_square = tf.cumsum(tf.square(order), axis=1) / places
    inside = _entmax_threshold(mean, mean_square, places) <= order
    support, size = _support(rows, order, inside)
    mean = tf.reduce_sum(support * rows, axis=1, keepdims=True) / size
    mean_square = tf.reduce_sum(support * rows * rows, axis=1, keepdims=True)
    threshold = _entmax_threshold(mean, mean_square / size, size)
    return tf.square(tf.maximum(rows - threshold, 0))


def _entmax_threshold(mean, mean_square, size):
    rest = (1 - size * (mean_square - tf.square(mean))) / size
    # The root of 0 has no gradient.
    positive = rest > 0
    root = tf.sqrt(tf.where(positive, rest, 1))
    return mean - tf.where(positive, root, 0)


def _support(rows, order, inside):
    """1 for each number that has a weight, and how many they are."""
    kept = tf.where(inside, order, order[:, :1])
    smallest = tf.reduce_min(kept, axis=1, keepdims=True)
    support = tf.cast(tf.stop_gradient(rows) >= smallest, rows.dtype)
    return support, tf.reduce_sum(support, axis=1, keepdims=True)


ACTIVATIONS = {
    "softmax": tf.nn.softmax,
    "sparsemax": sparsemax,
    "entmax": entmax,
}


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


def get_mixture(identifier):
    """A `Mixture` of None, an activation, or a serialized form."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Mixture):
        return identifier
    return Mixture(activation=identifier)
