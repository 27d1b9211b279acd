"""Functions that turn the rows of a transform into weights of anchors."""

import tensorflow as tf


def sparsemax(rows):
    """The points of the simplex nearest to rows: sums of 1, exact zeros."""
    order = tf.sort(tf.stop_gradient(rows), direction="DESCENDING")
    places = tf.range(1, tf.shape(rows)[1] + 1)
    places = tf.cast(places, rows.dtype)
    inside = 1 + places * order > tf.cumsum(order, axis=1)
    return tf.maximum(rows - _sparsemax_threshold(rows, order, inside), 0)


def _sparsemax_threshold(rows, order, inside):
    smallest = _smallest(order, inside)
    support = tf.cast(tf.stop_gradient(rows) >= smallest, rows.dtype)
    size = tf.reduce_sum(support, axis=1, keepdims=True)
    return (tf.reduce_sum(support * rows, axis=1, keepdims=True) - 1) / size


def entmax(rows):
    """1.5-entmax: between softmax and sparsemax, with exact zeros."""
    rows = rows / 2
    order = tf.sort(tf.stop_gradient(rows), direction="DESCENDING")
    places = tf.range(1, tf.shape(rows)[1] + 1)
    places = tf.cast(places, rows.dtype)
    mean = tf.cumsum(order, axis=1) / places
    mean_square = tf.cumsum(tf.square(order), axis=1) / places
    inside = _entmax_threshold(mean, mean_square, places) <= order
    support = tf.cast(
        tf.stop_gradient(rows) >= _smallest(order, inside), rows.dtype
    )
    size = tf.reduce_sum(support, axis=1, keepdims=True)
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


def _smallest(order, inside):
    """The smallest of the numbers in the support, a column."""
    largest = order[:, :1]
    return tf.reduce_min(
        tf.where(inside, order, largest), axis=1, keepdims=True
    )


ACTIVATIONS = {
    "softmax": tf.nn.softmax,
    "sparsemax": sparsemax,
    "entmax": entmax,
}
