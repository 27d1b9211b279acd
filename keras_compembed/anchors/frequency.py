"""Anchors that stand for the most frequent objects."""

import keras

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.utils.validation import check_scores


@keras.saving.register_keras_serializable(package="keras_compembed")
class Frequency(AnchorInitializer):
    """Anchors stand for the most frequent objects.

    They are in order, the most frequent first, and of two as frequent the
    lower id. Their embeddings start as a random basis.

    Example:

    >>> Frequency([5, 9, 0, 7]).choose(input_dim=4, num_anchors=2)
    array([1, 3])

    Args:
        counts: Array `(input_dim,)` of numbers, how often each id occurs.
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if `counts` is not one finite number of at least 0 per id,
            or `seed` is not an integer of at least 0; by `choose`, if
            there are not `input_dim` counts or more anchors than ids.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """

    def __init__(self, counts, seed=None):
        super().__init__(seed)
        self.counts = check_scores("counts", counts)

    def choose(self, input_dim, num_anchors):
        check_rows("counts", self.counts, input_dim)
        check_num_anchors(num_anchors, input_dim)
        return highest(self.counts, num_anchors)

    def get_config(self):
        return {"counts": self.counts.tolist(), **super().get_config()}
