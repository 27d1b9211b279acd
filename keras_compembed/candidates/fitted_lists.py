"""Even lists of classes for a layer that was trained without a search."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.approximate_nearest import ALIGNED
from keras_compembed.candidates.approximate_nearest import ApproximateNearest
from keras_compembed.trees.balanced_k_means import split_evenly
from keras_compembed.utils.one_thread import one_thread

# Numbers that an order of lists, or vectors of classes, hold at a time.
_ENTRIES = 1 << 22


def with_lists(head, features, num_lists):
    """A layer with the vectors and biases of another, and lists of them."""
    # Even lists have no room to spare, of which a file would score all.
    selector = ApproximateNearest(num_lists=num_lists, capacity_factor=1.0)
    shortest = head.num_classes // num_lists
    made = type(head).from_config(
        {
            **head.get_config(),
            "selector": keras.saving.serialize_keras_object(selector),
            "num_candidates": min(head.num_candidates, shortest),
            "class_embedding": None,
            "kernel_initializer": "zeros",
        }
    )
    made.build((None, features.shape[1]))
    vectors, biases = _classes_of(head, features.shape[1])
    made.kernel.assign(vectors)
    if made.bias is not None:
        made.bias.assign(biases)
    made.noise.set_weights(head.noise.get_weights())
    scale = float(np.sqrt(np.mean(np.square(features, dtype="float64"))))
    scale = scale or 1.0
    made.selector.feature_scale.assign(scale)
    # What a difference counts in the scores of features of that scale.
    points = np.column_stack([ALIGNED * scale * vectors, biases])
    lists = even_lists(points, *made.selector.lists.shape)
    made.selector.refresh(made.scores, lists)
    return made


def _classes_of(head, width):
    """Vectors and biases of all classes."""
    vectors = np.empty((head.num_classes, width), "float32")
    biases = np.empty(head.num_classes, "float32")
    size = max(1, _ENTRIES // width)
    for start in range(0, head.num_classes, size):
        end = min(start + size, head.num_classes)
        ids = tf.range(start, end)
        vectors[start:end] = head.scores.class_vectors(ids)
        biases[start:end] = head.scores.class_biases(ids)
    return vectors, biases


def even_lists(points, number, capacity):
    """Lists of the rows of points that are near each other."""
    points = np.nan_to_num(points, copy=False, posinf=0.0, neginf=0.0)
    rows = np.arange(len(points))
    list_of = np.zeros_like(rows)
    if number > 1:
        with one_thread():
            (list_of,) = split_evenly(
                points, rows[None], number, np.random.default_rng(0)
            )
    order = np.argsort(list_of, kind="stable")
    sizes = np.bincount(list_of, minlength=number)
    starts = np.cumsum(sizes) - sizes
    places = rows - np.repeat(starts, sizes)
    lists = np.full((number, capacity), -1)
    lists[list_of[order], places] = order
    return lists


def list_of_classes(head):
    """The list of each class, integer array `(num_classes,)`."""
    lists = head.selector.lists.numpy()
    list_of = np.empty(head.num_classes, "int64")
    rows, places = np.nonzero(lists >= 0)
    list_of[lists[rows, places]] = rows
    return list_of


def lists_to_open(head, features, k):
    """Lists to open, likeliest first, until each best class is found."""
    list_of = list_of_classes(head)
    number = head.selector.lists.shape[0]
    opened = []
    size = max(1, min(256, _ENTRIES // number))
    for start in range(0, len(features), size):
        part = tf.constant(features[start : start + size])
        best = head.scores.top_k(part, k)[0].numpy()
        order = head.selector.order_of_lists(part, number).numpy()
        turns = 1 + np.argsort(order, axis=1)
        found = np.take_along_axis(turns, list_of[best], axis=1)
        # Where vectors are NaN, there are no more classes to be found.
        opened.append(np.where(best >= 0, found, 1))
    return np.concatenate(opened)
