"""Frequent objects as anchors, completed by k-means++."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.anchors.k_means_seeding import k_means_seeds
from keras_compembed.anchors.table_initializer import TableInitializer
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_scores


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequencyThenKMeansPlusPlus(TableInitializer):
    """The most frequent objects, then others that complete their span.

    The first anchors stand for the most frequent objects. The others are
    drawn as k-means++ would go on from them: each with a probability
    proportional to its squared distance from the nearest anchor so far.

    Example:

    >>> counts = [5, 9, 0, 7]
    >>> table = [[0.0], [0.0], [3.0], [0.0]]
    >>> initializer = FrequencyThenKMeansPlusPlus(counts, table, 2)
    >>> initializer.choose(input_dim=4, num_anchors=3)
    array([1, 3, 2])

    Args:
        counts: Array `(input_dim,)` of numbers, how often each id occurs.
        table: Array `(input_dim, width)` of finite numbers, a point for each
            object. It is read a part at a time, once for each anchor, and
            may be memory-mapped.
        num_frequent: Optional integer of at least 0, how many anchors stand
            for the most frequent objects. Defaults to half of the anchors.
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if `counts` is not one finite number of at least 0 for
            each row of the table, the table is not a finite matrix,
            or an integer is out of range; by `choose`, if the table has not
            `input_dim` rows, or anchors are more than those or fewer than
            `num_frequent`.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), Figure 2
    """

    def __init__(self, counts, table, num_frequent=None, seed=None):
        super().__init__(table, seed)
        self.counts = check_scores("counts", counts)
        if len(self.counts) != len(self.table):
            raise ValueError(
                "`counts` must hold one number for each row of `table`. "
                f"Received: {len(self.counts)} counts, "
                f"{len(self.table)} rows."
            )
        self.num_frequent = num_frequent
        if num_frequent is not None:
            self.num_frequent = check_positive_int(
                "num_frequent", num_frequent, minimum=0
            )

    def choose_rows(self, num_anchors):
        number = self.num_frequent
        if number is None:
            number = num_anchors // 2
        if number > num_anchors:
            raise ValueError(
                "`num_frequent` must be at most the number of anchors. "
                f"Received: num_frequent={number}, num_anchors={num_anchors}."
            )
        return k_means_seeds(
            self.table,
            num_anchors,
            np.random.default_rng(self.seed),
            first=highest(self.counts, number),
        )

    def get_config(self):
        return {
            "counts": self.counts.tolist(),
            "num_frequent": self.num_frequent,
            **super().get_config(),
        }
