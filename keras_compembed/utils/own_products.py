"""Products of features with vectors that each row has for itself."""

import tensorflow as tf


def own_products(vectors, features):
    """Products of the vectors of each row with its features."""
    if features.shape[0] == 1:
        # The same, as the one kind of product that is fast on phones, without
        # the copy that `vectors[0]` is there.
        vectors = tf.reshape(vectors, (-1, features.shape[1]))
        return tf.matmul(features, vectors, transpose_b=True)
    return tf.linalg.matvec(vectors, features)
