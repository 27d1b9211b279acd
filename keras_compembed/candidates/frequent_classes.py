"""The most frequent classes as candidates of every example."""

import keras
import numpy as np

from keras_compembed.candidates.selector import Selector
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.validation import check_scores


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequentClasses(Selector):
    """The same candidates for all examples: those that occur most.

    With one set for all, their scores are a matrix product, which is far
    faster than rows looked up for each example. For classes of very different
    frequency, such as words; then `share_noises` of the layer too.

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
        counts: Array `(num_classes,)`, how often each class occurs.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if `counts` are not numbers of at least 0, one for each
            class.
    """

    def __init__(self, counts, **kwargs):
        super().__init__(**kwargs)
        self.counts = check_scores("counts", counts)

    def attach(self, num_classes, num_candidates):
        if len(self.counts) != num_classes:
            raise ValueError(
                "`counts` must have one entry for each class, "
                f"num_classes={num_classes}. "
                f"Received: {len(self.counts)} of them."
            )
        super().attach(num_classes, num_candidates)

    def build(self, input_shape=None):
        if self.built:
            return
        self.classes = self.add_weight(
            name="classes",
            shape=(self.num_candidates,),
            dtype="int32",
            initializer=self._most_frequent,
            trainable=False,
        )
        self.built = True

    def _most_frequent(self, shape, dtype):
        return np.argsort(-self.counts, kind="stable")[: shape[0]]

    def select(self, scores, features, context=None):
        return self.classes.value

    def load_own_variables(self, store):
        """Leaves the classes: counts are settings, of the config."""

    def get_config(self):
        return {**super().get_config(), "counts": pack_array(self.counts)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "counts": unpack_array(config["counts"])})
