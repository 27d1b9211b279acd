"""Anchors chosen by counts, documents or the rows of a table."""

import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

# So that a part and its differences stay in a core's cache.
_PART = 1 << 17


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


class TfIdf(AnchorInitializer):
    """Anchors stand for the objects of the highest TF-IDF.

    The score of an id is how often it occurs (tf), times the logarithm of the
    number of documents over the number of those that it occurs in (idf). Of
    two equal scores the lower id comes first. Anchor embeddings start as a
    random basis.

    Example:

    >>> documents = [[0, 1, 1], [0, 2], [0, 0]]
    >>> TfIdf(documents).choose(input_dim=3, num_anchors=2)
    array([1, 2])

    Args:
        documents: Sequence of documents, each a sequence of ids, or None
            where `scores` are given. Defaults to `None`.
        scores: Array `(input_dim,)` of scores of at least 0 computed elsewhere,
            in place of documents. Defaults to `None`.
        seed: Optional integer. Defaults to one drawn at random.

    References:
        - Ramos, Using TF-IDF to Determine Word Relevance in Document Queries,
          1999
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """

    def __init__(self, documents=None, scores=None, seed=None):
        super().__init__(seed)
        is_one_given = (documents is None) != (scores is None)
        rule = "Either `documents` or `scores` must be given."
        require(is_one_given, rule, scores=scores)
        self.has_all = scores is not None
        if documents is not None:
            scores = tf_idf([_check_document(ids) for ids in documents])
        self.scores = check_scores("scores", scores)

    def choose(self, input_dim, num_anchors):
        number = len(self.scores)
        if self.has_all:
            check_rows("scores", self.scores, input_dim)
        rule = f"`documents` must hold ids below input_dim={input_dim}."
        require(number <= input_dim, rule, id=number - 1)
        check_num_anchors(num_anchors, input_dim)
        scores = np.pad(self.scores, (0, input_dim - number))
        return highest(scores, num_anchors)


def tf_idf(documents):
    """Scores of ids from 0 to the highest in `documents`."""
    ids = np.concatenate([np.zeros(0, "int64"), *documents])
    require(len(ids), "`documents` must hold an id.", documents=documents)
    counts = np.bincount(ids)
    once = np.concatenate([np.unique(document) for document in documents])
    with_id = np.bincount(once, minlength=len(counts))
    return counts * np.log(len(documents) / np.maximum(with_id, 1))


def _check_document(ids):
    ids = np.asarray(ids)
    are_ids = ids.ndim == 1 and ids.dtype.kind in "iu"
    are_ids = are_ids and ids.min(initial=0) >= 0
    rule = "`documents` must hold sequences of ids, integers of at least 0."
    require(are_ids or not ids.size, rule, document=ids)
    return ids.astype("int64").ravel()


class KMeansPlusPlus(AnchorInitializer):
    """Anchors span a space of objects, chosen by k-means++.

    Each object is drawn with a probability proportional to its squared
    distance from the nearest drawn before. Anchors start as the points drawn
    where these are as wide as the embedding, else as a random basis.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> initializer = KMeansPlusPlus(table, seed=0)
    >>> ids = initializer.choose(input_dim=1000, num_anchors=10)
    >>> vectors = initializer.vectors(num_anchors=10, output_dim=64)
    >>> np.array_equal(vectors, table[ids].astype("float32"))
    True

    Args:
        table: Array `(input_dim, width)` of finite numbers, a point for each
            object. It is read a part at a time and may be memory-mapped.
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
        # A layer asks for ids and for vectors.
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
    others are drawn as k-means++ would go on from them.

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
