"""All classes, or the most frequent, as candidates of every example."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.selector import Selector
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class AllClasses(Selector):
    """Every class is a candidate of every example.

    The layer draws no noises and trains the softmax over all classes. Up to
    some thousands of classes, that is as fast as any choice among them.

    Example:

    >>> head = kc.CANESoftmax(1000, AllClasses())

    Args:
        **kwargs: `name` of `keras.layers.Layer`.
    """

    def attach(self, num_classes, num_candidates):
        super().attach(num_classes, num_classes)

    def select(self, scores, features, context=None):
        return tf.range(self.num_classes)


class CountsSelector(Selector):
    """Base of selectors that choose by how often classes occur."""

    def __init__(self, counts, **kwargs):
        super().__init__(**kwargs)
        self.counts = check_scores("counts", counts)

    def attach(self, num_classes, num_candidates):
        require(
            len(self.counts) == num_classes,
            "`counts` must have one entry for each class.",
            num_classes=num_classes,
            counts=len(self.counts),
        )
        super().attach(num_classes, num_candidates)

    def get_config(self):
        return {**super().get_config(), "counts": pack_array(self.counts)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "counts": unpack_array(config["counts"])})


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequentClasses(CountsSelector):
    """The same candidates for all examples: those that occur most.

    With one set for all, their scores are a matrix product. For classes of
    very different frequency, such as words; then `share_noises` too.

    Example:

    >>> counts = 1000 // np.arange(1, 1001)
    >>> head = kc.CANESoftmax(
    ...     1000,
    ...     FrequentClasses(counts),
    ...     num_candidates=100,
    ...     num_noises=50,
    ...     noise=kc.noises.UnigramNoise(counts),
    ...     share_noises=True,
    ...     class_counts=counts,
    ... )

    Args:
        counts: Array `(num_classes,)` of numbers of at least 0, how often each
            class occurs.
        **kwargs: `name` of `keras.layers.Layer`.
    """

    def build(self, input_shape=None):
        if self.built:
            return
        order = np.argsort(-self.counts, kind="stable")
        self.classes = self._add_state("classes", order[: self.num_candidates])
        self.built = True

    def select(self, scores, features, context=None):
        return self.classes.value

    def load_own_variables(self, store):
        """Leaves the classes: counts are settings, of the config."""
