"""Where class vectors lie in random directions, without gradients."""

import tensorflow as tf

from keras_compembed.candidates.class_scores import ClassScores
from keras_compembed.utils.chunks import MOST_NUMBERS
from keras_compembed.utils.chunks import in_parts


def furthest_classes(scores, directions, number):
    """The classes that lie furthest in each direction."""
    vectors = ClassScores(scores.table, tree=scores.tree, nodes=scores.nodes)
    ids, _, _ = vectors.top_k(directions, number)
    return ids


def nearest_directions(vectors, directions):
    """In which direction of each group vectors lie furthest."""
    groups, number, width = directions.shape
    products = tf.matmul(
        vectors, tf.reshape(directions, (-1, width)), transpose_b=True
    )
    products = tf.reshape(products, (-1, groups, number))
    return tf.argmax(products, axis=2, output_type="int32")


def nearest_directions_of_classes(scores, directions):
    """`nearest_directions` of the vectors of all classes."""
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
