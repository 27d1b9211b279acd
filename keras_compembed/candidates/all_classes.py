"""All classes as candidates: the softmax over all classes itself."""

import keras
import tensorflow as tf

from keras_compembed.candidates.selector import Selector


@keras.saving.register_keras_serializable(package="keras_compembed")
class AllClasses(Selector):
    """Every class is a candidate of every example.

    A layer with this selector draws no noises and trains the softmax over all
    classes. Up to some thousands of classes, that is one matrix product and
    as fast as any choice among them.

    Example:

    >>> head = kc.CANESoftmax(1000, AllClasses())

    Args:
        **kwargs: `name` of `keras.layers.Layer`.
    """

    def attach(self, num_classes, num_candidates):
        super().attach(num_classes, num_classes)

    def select(self, scores, features, context=None):
        return tf.range(self.num_classes)
