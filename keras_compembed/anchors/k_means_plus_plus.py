"""Anchors that start from rows of a table, chosen by k-means++."""

import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import float_chunks

# So that a part and its differences stay in a core's cache.
_PART = 1 << 17


class KMeansPlusPlus(AnchorInitializer):
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
        seed: Optional integer. Defaults to one drawn at random.

    References:
        - Arthur & Vassilvitskii, k-means++: The Advantages of Careful
          Seeding, 2007
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """

    def __init__(self, table, seed=None):
        super().__init__(seed)
        self.table = check_fitted_table(table)
        self._choices = {}

    def choose(self, input_dim, num_anchors):
        check_rows("table", self.table, input_dim)
        check_num_anchors(num_anchors, input_dim)
        # A layer asks for ids and for vectors: passes over the table are
        # made once.
        if num_anchors not in self._choices:
            rng = np.random.default_rng(self.seed)
            first = self._first(num_anchors)
            ids = k_means_seeds(self.table, num_anchors, rng, first)
            self._choices = {num_anchors: ids}
        return self._choices[num_anchors].copy()

    def _first(self, num_anchors):
        """Ids that are chosen in advance."""
        return ()

    def vectors(self, num_anchors, output_dim):
        if self.table.shape[1] != output_dim:
            return super().vectors(num_anchors, output_dim)
        ids = self.choose(len(self.table), num_anchors)
        return self.table[ids].astype("float32")


class FrequencyThenKMeansPlusPlus(KMeansPlusPlus):
    """The most frequent objects, then others that complete their span.

    The first half of the anchors stands for the most frequent objects. The
    others are drawn as k-means++ would go on from them: each with a probability
    proportional to its squared distance from the nearest anchor so far.

    Example:

    >>> counts = [5, 9, 0, 7]
    >>> table = [[0.0], [0.0], [3.0], [0.0]]
    >>> initializer = FrequencyThenKMeansPlusPlus(counts, table)
    >>> initializer.choose(input_dim=4, num_anchors=2)
    array([1, 2])

    Args:
        counts: Array `(input_dim,)` of numbers, how often each id occurs.
        table: Same as for `KMeansPlusPlus`.
        seed: Optional integer. Defaults to one drawn at random.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), Figure 2
    """

    def __init__(self, counts, table, seed=None):
        super().__init__(table, seed)
        self.counts = check_scores("counts", counts)
        check_rows("counts", self.counts, len(self.table))

    def _first(self, num_anchors):
        return highest(self.counts, num_anchors // 2)


def k_means_seeds(table, number, rng, first=()):
    """Chooses rows that span a table, as k-means++ starts."""
    ids, left = [], list(first)
    nearest = np.full(len(table), np.inf)
    while len(ids) < number:
        chances = nearest if ids else np.ones(len(table))
        if left:
            row = left.pop(0)
        elif chances.any():
            row = rng.choice(len(table), p=chances / chances.sum())
        else:
            row = rng.choice(np.setdiff1d(np.arange(len(table)), ids))
        ids.append(int(row))
        for start, rows in float_chunks(table, max(1, _PART // table.shape[1])):
            # Differences first: sums of products would not be 0 for equal rows.
            rows = rows - np.asarray(table[row], "float32")
            part = nearest[start : start + len(rows)]
            np.minimum(part, np.einsum("ij,ij->i", rows, rows), out=part)
    return np.asarray(ids, "int64")
