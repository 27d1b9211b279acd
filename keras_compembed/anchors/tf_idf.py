"""Anchors that stand for the objects of the highest TF-IDF."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.anchors.anchor_initializer import highest
from keras_compembed.utils.validation import check_scores


@keras.saving.register_keras_serializable(package="keras_compembed")
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
        documents: Sequence of documents, each a sequence of ids. None only
            where `scores` are given. Defaults to `None`.
        scores: Array `(input_dim,)` of scores computed elsewhere, in place
            of documents. Defaults to `None`.
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if not one of `documents` and `scores` is given, if there
            are no documents or they hold anything but ids, if scores are not
            finite numbers of at least 0, or `seed` is not an integer of at
            least 0; by `choose`, if scores are not `input_dim`, an id is
            not below it, or anchors are more.

    References:
        - Ramos, Using TF-IDF to Determine Word Relevance in Document Queries,
          1999
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """

    def __init__(self, documents=None, scores=None, seed=None):
        super().__init__(seed)
        if (documents is None) == (scores is None):
            received = "none" if documents is None else "both"
            raise ValueError(
                "One of `documents` and `scores` must be given. "
                f"Received: {received} of them."
            )
        self.documents = documents
        if scores is None:
            self.documents = [_check_document(ids) for ids in documents]
            self.scores = tf_idf(self.documents)
        else:
            self.scores = check_scores("scores", scores)

    def choose(self, input_dim, num_anchors):
        scores = self.scores
        if self.documents is None:
            check_rows("scores", scores, input_dim)
        elif len(scores) > input_dim:
            raise ValueError(
                f"`documents` must hold ids below input_dim={input_dim}. "
                f"Received: id {len(scores) - 1}."
            )
        check_num_anchors(num_anchors, input_dim)
        scores = np.pad(scores, (0, input_dim - len(scores)))
        return highest(scores, num_anchors)

    def get_config(self):
        config = super().get_config()
        if self.documents is None:
            return {"scores": self.scores.tolist(), **config}
        return {
            "documents": [ids.tolist() for ids in self.documents],
            **config,
        }


def tf_idf(documents):
    """Scores of ids from 0 to the highest in `documents`."""
    ids = np.concatenate([np.zeros(0, "int64"), *documents])
    if not len(ids):
        raise ValueError(
            "`documents` must hold at least one id. "
            f"Received: {len(documents)} documents, all empty."
        )
    counts = np.bincount(ids)
    with_id = np.bincount(
        np.concatenate([np.unique(document) for document in documents]),
        minlength=len(counts),
    )
    return counts * np.log(len(documents) / np.maximum(with_id, 1))


def _check_document(ids):
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(0, "int64")
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError(
            "`documents` must hold sequences of ids, integers of at least 0. "
            f"Received: a document of shape {array.shape} and dtype "
            f"{array.dtype}, {array.ravel()[:5]}..."
        )
    return array.astype("int64")
