"""Loss of anchors that are not orthogonal."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_positive_number


@keras.saving.register_keras_serializable(package="keras_compembed")
class Orthogonality(keras.regularizers.Regularizer):
    """The sum of `|a_i . a_j|` over all i and j that differ.

    Example:

    >>> anchors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> float(Orthogonality(weight=0.5)(anchors))
    2.0
    >>> anchors = kc.stores.WeightSpec(regularizer=Orthogonality(1e-4))
    >>> layer = kc.ANTEmbedding(1000, 64, anchors=anchors)

    Args:
        weight: Number of at least 0.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.2
    """

    def __init__(self, weight=1e-4):
        self.weight = check_positive_number("weight", weight, zero=True)

    def __call__(self, anchors):
        # The dtype of Keras's losses; sums overflow in half precision.
        anchors = tf.cast(anchors, keras.config.floatx())
        products = tf.abs(tf.matmul(anchors, anchors, transpose_b=True))
        total = tf.reduce_sum(products) - tf.linalg.trace(products)
        return self.weight * total

    def get_config(self):
        return {"weight": self.weight}
