"""Anchors that start from rows of a table, chosen by k-means++."""

import keras
import numpy as np

from keras_compembed.anchors.k_means_seeding import k_means_seeds
from keras_compembed.anchors.table_initializer import TableInitializer
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight


@keras.saving.register_keras_serializable(package="keras_compembed")
class KMeansPlusPlus(TableInitializer):
    """Anchors span a space of objects, chosen by k-means++.

    Each object is drawn with a probability proportional to its squared
    distance from the nearest drawn before. Anchors start as the points drawn
    where the space is as wide as the embedding, and as a random basis where
    it is not.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> initializer = KMeansPlusPlus(table, seed=0)
    >>> ids = initializer.choose(input_dim=1000, num_anchors=10)
    >>> vectors = initializer.vectors(num_anchors=10, output_dim=64)
    >>> np.array_equal(vectors, table[ids].astype("float32"))
    True

    Args:
        table: Array `(input_dim, width)` of finite numbers, a point for each
            object: pretrained embeddings, say. It is read a part at a time,
            once for each anchor, and may be memory-mapped.
        sample_weight: Optional array `(input_dim,)`, how much each object
            counts: probabilities are multiplied by it. Defaults to `None`.
        num_candidates: Positive integer. How many objects are drawn for each
            anchor, of which the best is kept; time is proportional to it.
            Defaults to `1`, plain k-means++.
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if the table is not a finite matrix, `sample_weight` is
            not a non-negative number per object, `num_candidates` is not a
            positive integer, or `seed` is not an integer of at least 0; by
            `choose`, if the table has not `input_dim` rows, or anchors are
            more.

    References:
        - Arthur & Vassilvitskii, k-means++: The Advantages of Careful
          Seeding, 2007
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """

    def __init__(self, table, sample_weight=None, num_candidates=1, seed=None):
        super().__init__(table, seed)
        self.sample_weight = check_sample_weight(sample_weight, len(self.table))
        self.num_candidates = check_positive_int(
            "num_candidates", num_candidates
        )

    def choose_rows(self, num_anchors):
        return k_means_seeds(
            self.table,
            num_anchors,
            np.random.default_rng(self.seed),
            self.sample_weight,
            num_candidates=self.num_candidates,
        )

    def get_config(self):
        weight = self.sample_weight
        return {
            "sample_weight": None if weight is None else weight.tolist(),
            "num_candidates": self.num_candidates,
            **super().get_config(),
        }
