"""Noise classes drawn evenly."""

import keras
import tensorflow as tf

from keras_compembed.noises.noise import Noise


@keras.saving.register_keras_serializable(package="keras_compembed")
class UniformNoise(Noise):
    """All classes but the excluded ones are drawn alike.

    What the paper samples from. It needs no memory and knows nothing of the
    data; where some classes are much more frequent than others, `UnigramNoise`
    and `LearnedNoise` estimate the loss with less variance.

    Example:

    >>> noise = UniformNoise()
    >>> noise.attach(num_classes=5)
    >>> bits = tf.constant([[0, 1, 2]], "int64")
    >>> noise.sample(bits, excluded=tf.constant([[3, 0]])).numpy()
    array([[1, 2, 4]], dtype=int32)

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 6
    """

    def weight_below(self, ids):
        return tf.cast(ids, "int64")

    def class_at(self, weights):
        return tf.cast(weights, "int32")
