"""Where class vectors lie in random directions, without gradients.

By vectors alone: biases, which are the same in all directions, tell nothing of
them. All classes are read, a part at a time.
"""

import tensorflow as tf

from keras_compembed.candidates.class_scores import ClassScores
from keras_compembed.utils.chunks import MOST_NUMBERS
from keras_compembed.utils.chunks import in_parts


def furthest_classes(scores, directions, number):
    """The classes that lie furthest in each direction.

    Args:
        scores: `ClassScores`.
        directions: float32 tensor `(directions, width)`.
        number: Integer, at most the number of classes.

    Returns:
        int32 tensor `(directions, number)`, different ids; -1 where NaN
        leaves fewer.
    """
    vectors = ClassScores(scores.table, tree=scores.tree, nodes=scores.nodes)
    ids, _, _ = vectors.top_k(directions, number)
    return ids


def nearest_directions(vectors, directions):
    """In which direction of each group vectors lie furthest.

    Args:
        vectors: float32 tensor `(rows, width)`.
        directions: float32 tensor `(groups, directions, width)`.

    Returns:
        int32 tensor `(rows, groups)`.
    """
    groups, number, width = directions.shape
    products = tf.matmul(
        vectors, tf.reshape(directions, (-1, width)), transpose_b=True
    )
    products = tf.reshape(products, (-1, groups, number))
    return tf.argmax(products, axis=2, output_type="int32")


def nearest_directions_of_classes(scores, directions):
    """`nearest_directions` of the vectors of all classes.

    Args:
        scores: `ClassScores`.
        directions: float32 tensor `(groups, directions, width)`.

    Returns:
        int32 tensor `(num_classes, groups)`.
    """
    groups, number, width = directions.shape
    ids = tf.range(scores.num_classes)
    (nearest,) = in_parts(
        lambda ids: (
            nearest_directions(scores.class_vectors(ids), directions),
        ),
        (ids,),
        (tf.zeros((scores.num_classes, groups), "int32"),),
        max(1, MOST_NUMBERS // max(width, groups * number)),
    )
    return nearest
