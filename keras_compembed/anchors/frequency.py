"""Anchors that stand for the most frequent, or the most telling, objects."""

import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import require


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

    The score of an id is the sum over documents of how often it occurs there
    (tf), times the logarithm of the number of documents over the number of
    those that it occurs in (idf). Ids that are in every document, as padding
    is, or in none, score 0. Of two equal scores the lower id comes first.
    Anchor embeddings start as a random basis.

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
