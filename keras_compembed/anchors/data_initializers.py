"""Anchors chosen by counts, documents or the rows of a table."""

import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

# Small enough for the cache of a core.
_PART = 1 << 17


class Frequency(AnchorInitializer):
    """Makes anchors represent the objects with the highest count or TF-IDF.

    Anchors are ordered by frequency, highest first, with ties by id. Their
    initial vectors are a random basis.

    Example:

    >>> layer = kc.ANTEmbedding(4, 8, 2, anchors=Frequency([5, 9, 0, 7]))
    >>> layer.anchor_ids
    array([1, 3])
    >>> documents = [[0, 1, 1], [0, 2], [0, 0]]
    >>> anchors = Frequency(documents=documents)
    >>> kc.ANTEmbedding(3, 8, 2, anchors).anchor_ids
    array([1, 2])

    Args:
        counts: Array `(input_dim,)` of non-negative numbers: how often each id
            occurs, or other scores. Must be `None` with `documents`.
        documents: Sequence of documents, each a sequence of ids. The score of
            an id is its TF-IDF: its count times `log(n / m)`, for `n` documents
            and `m` documents with the id. Must be `None` with `counts`.
        seed: Optional integer. Defaults to a random one.

    Raises:
        ValueError: If not exactly one of `counts` and `documents` is given.

    References:
        - Ramos, Using TF-IDF to Determine Word Relevance in Document Queries,
          1999
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """

    def __init__(
        self,
        counts: ArrayLike | None = None,
        documents: list | tuple | None = None,
        seed: int | None = None,
    ):
        super().__init__(seed)
        is_one_given = (counts is None) != (documents is None)
        rule = "Either `counts` or `documents` must be given."
        require(is_one_given, rule, counts=counts)
        self._has_all = documents is None
        if documents is not None:
            counts = tf_idf([_check_document(ids) for ids in documents])
        self.counts = check_scores("counts", counts)

    def choose(self, input_dim, num_anchors):
        number = len(self.counts)
        if self._has_all:
            check_rows("counts", self.counts, input_dim)
        rule = f"`documents` must have ids below input_dim={input_dim}."
        require(number <= input_dim, rule, id=number - 1)
        check_num_anchors(num_anchors, input_dim)
        scores = np.pad(self.counts, (0, input_dim - number))
        return highest(scores, num_anchors)


def tf_idf(documents):
    """TF-IDF of ids from 0 to the highest in `documents`."""
    ids = np.concatenate([np.zeros(0, "int64"), *documents])
    require(len(ids), "`documents` must have ids.", documents=documents)
    counts = np.bincount(ids)
    once = np.concatenate([np.unique(document) for document in documents])
    with_id = np.bincount(once, minlength=len(counts))
    return counts * np.log(len(documents) / np.maximum(with_id, 1))


def _check_document(ids):
    ids = np.asarray(ids)
    are_ids = ids.ndim == 1 and ids.dtype.kind in "iu"
    are_ids = are_ids and ids.min(initial=0) >= 0
    rule = "`documents` must have sequences of ids, non-negative integers."
    require(are_ids or not ids.size, rule, document=ids)
    return ids.astype("int64").ravel()


class KMeansPlusPlus(AnchorInitializer):
    """Makes anchors represent objects that are far apart, by k-means++.

    Each object is drawn with a probability proportional to its squared
    distance from the nearest object drawn before. The initial anchors are the
    rows drawn if these have the width of the embedding. Otherwise they are a
    random basis.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> initializer = KMeansPlusPlus(table, seed=0)
    >>> ids = initializer.choose(input_dim=1000, num_anchors=10)
    >>> vectors = initializer.vectors(num_anchors=10, output_dim=64)
    >>> np.array_equal(vectors, table[ids].astype("float32"))
    True

    Args:
        table: Array `(input_dim, width)` of finite numbers, a row for each
            object. It is read in parts and may be memory-mapped.
        counts: Optional array `(input_dim,)`, how often each id occurs. Half
            of the anchors then represent the most frequent ids, and k-means++
            draws the rest. Defaults to `None`.
        seed: Optional integer. Defaults to a random one.

    Raises:
        ValueError: If `table` is not finite, or `counts` do not fit it.

    References:
        - Arthur & Vassilvitskii, k-means++: The Advantages of Careful
          Seeding, 2007
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
          and Figure 2
    """

    def __init__(
        self,
        table: ArrayLike,
        counts: ArrayLike | None = None,
        seed: int | None = None,
    ):
        super().__init__(seed)
        self.table = check_fitted_table(table)
        self.counts = None
        if counts is not None:
            self.counts = check_scores("counts", counts)
            check_rows("counts", self.counts, len(self.table))
        self._choices = {}

    def choose(self, input_dim, num_anchors):
        check_rows("table", self.table, input_dim)
        check_num_anchors(num_anchors, input_dim)
        # A layer needs both the ids and the vectors.
        if num_anchors not in self._choices:
            rng = np.random.default_rng(self.seed)
            first = ()
            if self.counts is not None:
                first = highest(self.counts, num_anchors // 2)
            ids = k_means_seeds(self.table, num_anchors, rng, first)
            self._choices = {num_anchors: ids}
        return self._choices[num_anchors].copy()

    def vectors(self, num_anchors, output_dim):
        if self.table.shape[1] != output_dim:
            return super().vectors(num_anchors, output_dim)
        ids = self.choose(len(self.table), num_anchors)
        return self.table[ids].astype("float32")


def k_means_seeds(table, number, rng, first=()):
    """Chooses rows that are far apart, as in k-means++."""
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
            # Differences first: expanded squares would not be 0 for equal rows.
            rows = rows - np.asarray(table[row], "float32")
            part = nearest[start : start + len(rows)]
            np.minimum(part, np.einsum("ij,ij->i", rows, rows), out=part)
    return np.asarray(ids, "int64")
