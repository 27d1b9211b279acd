"""Pairs of related objects."""

import keras
import numpy as np

from keras_compembed.anchors.cooccurrence import among_top
from keras_compembed.anchors.cooccurrence import check_ids
from keras_compembed.anchors.cooccurrence import count_pairs
from keras_compembed.anchors.cooccurrence import mutual_information
from keras_compembed.anchors.wordnet import wordnet_pairs
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int

# About 1.6 GB while they are made.
_MOST_CLUSTER_PAIRS = 20_000_000


@keras.saving.register_keras_serializable(package="keras_compembed")
class Relations:
    """Pairs of related objects.

    Relations go both ways. Repeated pairs count once, and pairs of an object
    with itself are left out.

    Example:

    >>> relations = Relations([(0, 1), (3, 1)], input_dim=5)
    >>> relations.related([1, 1], [3, 4])
    array([ True, False])
    >>> relations |= Relations.from_clusters([7, 8, 9, 8, 7])
    >>> relations.pairs.tolist()
    [[0, 1], [0, 4], [1, 3]]

    Args:
        pairs: Integer array `(pairs, 2)` of ids.
        input_dim: Integer, the number of objects.

    Attributes:
        input_dim: Integer.
        keys: Sorted int64 array `(2 * pairs,)`, `u * input_dim + v` for each
            pair in both orders.

    Raises:
        ValueError: if `pairs` are not pairs of integers, name ids that are
            negative or not below `input_dim`, or `input_dim` is not a
            positive integer of at most 2**31.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.3
    """

    def __init__(self, pairs, input_dim):
        # Of larger ones the keys would not fit in int64.
        self.input_dim = check_positive_int(
            "input_dim", input_dim, maximum=2**31
        )
        pairs = np.asarray(pairs)
        if not pairs.size:
            pairs = np.zeros((0, 2), "int64")
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(
                "`pairs` must have two columns of ids. "
                f"Received: an array of shape {pairs.shape}."
            )
        first, second = (
            check_ids("pairs", ids, self.input_dim).astype("int64")
            for ids in pairs.T
        )
        apart = first != second
        first, second = first[apart], second[apart]
        keys = np.concatenate(
            [
                first * self.input_dim + second,
                second * self.input_dim + first,
            ]
        )
        # `np.unique` takes 70 times as long for millions of keys.
        keys.sort()
        self.keys = keys[np.diff(keys, prepend=-1) != 0]

    @classmethod
    def from_sparse(cls, matrix):
        """Relates the rows and columns of a sparse matrix's non-zeros.

        Args:
            matrix: Square matrix with a method `tocoo`, as those of SciPy.

        Raises:
            ValueError: if it has no such method or is not square.
        """
        if not hasattr(matrix, "tocoo"):
            raise ValueError(
                "`matrix` must be a sparse matrix of SciPy. "
                f"Received: matrix of type {type(matrix).__name__}."
            )
        matrix = matrix.tocoo()
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(
                "`matrix` must be square, with a row and a column for each "
                f"object. Received: matrix of shape {matrix.shape}."
            )
        kept = matrix.data != 0
        pairs = np.stack([matrix.row[kept], matrix.col[kept]], axis=1)
        return cls(pairs, matrix.shape[0])

    @classmethod
    def from_clusters(cls, labels):
        """Relates all objects of a cluster with each other.

        Example:

        >>> Relations.from_clusters([0, 1, 0, -1, 1, -1]).pairs.tolist()
        [[0, 2], [1, 4]]

        Args:
            labels: Integer array `(input_dim,)`, the cluster of each object.
                Negative where it is in none.

        Raises:
            ValueError: if labels are not one integer per object, or there
                would be more than 20,000,000 pairs.
        """
        labels = np.asarray(labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(
                "`labels` must hold one integer for each object. Received: an "
                f"array of shape {labels.shape} and dtype {labels.dtype}."
            )
        order = np.argsort(labels, kind="stable")
        order = order[np.searchsorted(labels[order], 0) :]
        ends = np.searchsorted(labels[order], labels[order], side="right")
        places = np.arange(len(order))
        # Each with those after it in its cluster.
        lengths = ends - places - 1
        if lengths.sum() > _MOST_CLUSTER_PAIRS:
            raise ValueError(
                "`labels` must make clusters of at most "
                f"{_MOST_CLUSTER_PAIRS:,} pairs in all. Received: labels of "
                f"{lengths.sum():,} pairs, the largest cluster of "
                f"{lengths.max() + 1:,} objects."
            )
        first = np.repeat(places, lengths)
        second = first + 1 + _count_within(lengths)
        return cls(np.stack([order[first], order[second]], 1), len(labels))

    @classmethod
    def from_tokens(
        cls,
        tokens,
        input_dim,
        window=10,
        min_count=1,
        top=None,
        min_information=None,
        ignore=(),
    ):
        """Relates ids that occur near each other in a text.

        Example:

        >>> tokens = [3, 1, 0, 4, 3, 1]
        >>> Relations.from_tokens(tokens, 5, window=1).pairs.tolist()
        [[0, 1], [0, 4], [1, 3], [3, 4]]
        >>> Relations.from_tokens(
        ...     tokens, 5, window=1, min_count=2
        ... ).pairs.tolist()
        [[1, 3]]

        Args:
            tokens: Integer array of ids in the order of the text, or a
                sequence of documents, each such an array. A bounded part of
                their pairs is in memory at a time, and all that differ.
            input_dim: Integer, the number of ids.
            window: Positive integer, how many places two ids may be apart.
                Defaults to `10`.
            min_count: Positive integer, how often two ids must occur near
                each other. Defaults to `1`.
            top: Optional positive integer. Keeps for each id the so many ids
                that are most often near it. Defaults to all.
            min_information: Optional number. Keeps pairs of at least this
                pointwise mutual information,
                `log(count(u, v) * total / (count(u) * count(v)))`, in nats:
                those above 0 occur together more often than by chance.
                Defaults to all.
            ignore: Ids that are related to none, such as that of padding.
                Defaults to none.

        Raises:
            ValueError: if tokens are not integers from 0 to below
                `input_dim`, or a number is out of range.
        """
        min_count = check_positive_int("min_count", min_count)
        input_dim = check_positive_int("input_dim", input_dim, maximum=2**31)
        keys, counts = count_pairs(tokens, input_dim, window, ignore)
        kept = counts >= min_count
        if min_information is not None:
            information = mutual_information(keys, counts, input_dim)
            kept &= information >= min_information
        keys, counts = keys[kept], counts[kept]
        if top is not None:
            top = check_positive_int("top", top)
            keys = keys[among_top(keys, counts, input_dim, top)]
        return cls(np.stack(np.divmod(keys, input_dim), axis=1), input_dim)

    @classmethod
    def from_wordnet(cls, vocabulary, folder=None, lemmatize=True):
        """Relates words that WordNet relates at once.

        Those are synonyms, hypernyms with their hyponyms, and antonyms.

        Example:

        >>> relations = Relations.from_wordnet(
        ...     ["[UNK]", "dogs", "puppy", "paper"], "WordNet-3.0/dict"
        ... )
        >>> relations.pairs.tolist()
        [[1, 2]]

        Args:
            vocabulary: Sequence of words, the id of each its place. Words of
                which WordNet knows nothing are related to none.
            folder: Path of the folder of WordNet's database files
                (`data.noun` and so on, `dict` in its distribution), or of a
                zip file of it, as NLTK downloads: the file
                `corpora/wordnet.zip` of its data. Defaults to `None`: where
                `WNSEARCHDIR`, NLTK or Debian's package have it.
            lemmatize: Boolean. Whether an inflected word ("dogs") is related
                to its base forms ("dog") and to all that they are related
                to, as in NLTK. Defaults to `True`.

        Raises:
            ValueError: if the vocabulary is empty or holds anything but
                strings, the files are not there, or they cannot be read.

        References:
            - [Liang et al., 2021](https://arxiv.org/abs/2003.08197),
              appendix E.1
            - Miller, WordNet: A Lexical Database for English, 1995
        """
        vocabulary = check_order("vocabulary", vocabulary)
        return cls(
            wordnet_pairs(vocabulary, folder, lemmatize), len(vocabulary)
        )

    @property
    def pairs(self):
        """int64 array `(pairs, 2)`, sorted, each with the lower id first."""
        first, second = np.divmod(self.keys, self.input_dim)
        return np.stack([first, second], axis=1)[first < second]

    def related(self, first, second):
        """Whether ids are related.

        Args:
            first, second: Integer arrays of ids, of shapes that broadcast.

        Returns:
            Boolean array.

        Raises:
            ValueError: if an id is negative or not below `input_dim`.
        """
        first, second = np.broadcast_arrays(first, second)
        for name, ids in (("first", first), ("second", second)):
            check_ids(name, ids.ravel(), self.input_dim)
        keys = first.astype("int64") * self.input_dim + second
        if not len(self.keys):
            return np.zeros(keys.shape, bool)
        places = np.searchsorted(self.keys, keys)
        return self.keys[np.minimum(places, len(self.keys) - 1)] == keys

    def within(self, steps, ids=None):
        """Relations of all objects that so many steps lead between, or fewer.

        With two steps of WordNet's, words with a hypernym in common are
        related. Section 3.3 of the paper takes one. A layer has no use for
        relations without an anchor; those of its anchors, `ids`, are far fewer.

        Example:

        >>> relations = Relations([(0, 1), (1, 2), (2, 3)], input_dim=4)
        >>> relations.within(2).pairs.tolist()
        [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
        >>> relations.within(2, ids=[0]).pairs.tolist()
        [[0, 1], [0, 2]]

        Args:
            steps: Positive integer.
            ids: Optional integer array, the objects of which relations are
                kept, such as `layer.anchor_ids`; -1 stands for none. Defaults
                to all.

        Returns:
            `Relations`.

        Raises:
            ValueError: if `steps` is not a positive integer, an id is below -1
                or not below `input_dim`, or there would be more than 20
                million pairs to look through.
        """
        wanted = np.ones(self.input_dim, bool)
        if ids is not None:
            ids = np.asarray(ids)
            ids = check_ids("ids", ids[ids != -1], self.input_dim)
            wanted[:] = False
            wanted[ids] = True
        reached = self._of(wanted)
        for _ in range(check_positive_int("steps", steps) - 1):
            first, middle = np.divmod(reached.keys, self.input_dim)
            first, middle = first[wanted[first]], middle[wanted[first]]
            starts = np.searchsorted(self.keys, middle * self.input_dim)
            ends = np.searchsorted(self.keys, (middle + 1) * self.input_dim)
            lengths = ends - starts
            if lengths.sum() > _MOST_CLUSTER_PAIRS:
                raise ValueError(
                    "`steps` must not lead to more than "
                    f"{_MOST_CLUSTER_PAIRS:,} pairs. Received: {steps=}, with "
                    f"{lengths.sum():,} pairs. Take fewer steps, name the "
                    "anchors by `ids`, or leave out objects that are related "
                    "to very many."
                )
            places = np.repeat(starts, lengths) + _count_within(lengths)
            last = self.keys[places] % self.input_dim
            pairs = np.stack([np.repeat(first, lengths), last], axis=1)
            reached = reached | Relations(pairs, self.input_dim)
        return reached

    def _of(self, wanted):
        """Relations of the objects that a boolean array names."""
        if wanted.all():
            return self
        first, second = np.divmod(self.keys, self.input_dim)
        kept = wanted[first]
        pairs = np.stack([first[kept], second[kept]], axis=1)
        return Relations(pairs, self.input_dim)

    def free_entries(self, anchor_ids):
        """The entries of a transform that relations keep from shrinking.

        Entry (u, c) is one if u is related to the object that anchor c stands
        for: the ones of the paper's 1 - S(G).

        Args:
            anchor_ids: Integer array `(num_anchors,)` of ids, -1 where an
                anchor stands for none.

        Returns:
            offsets: int64 array `(input_dim + 1,)`.
            columns: int64 array. Those of row u are
                `columns[offsets[u]:offsets[u + 1]]`, rising.

        Raises:
            ValueError: if an id is below -1 or not below `input_dim`.
        """
        anchor_ids = np.asarray(anchor_ids)
        anchors = np.flatnonzero(anchor_ids != -1)
        ids = check_ids("anchor_ids", anchor_ids[anchors], self.input_dim)
        ids = ids.astype("int64")
        starts = np.searchsorted(self.keys, ids * self.input_dim)
        lengths = (
            np.searchsorted(self.keys, (ids + 1) * self.input_dim) - starts
        )
        places = np.repeat(starts, lengths) + _count_within(lengths)
        rows = self.keys[places] % self.input_dim
        columns = np.repeat(anchors, lengths)
        order = np.lexsort((columns, rows))
        in_row = np.bincount(rows, minlength=self.input_dim)
        offsets = np.concatenate([[0], np.cumsum(in_row)])
        return offsets, columns[order]

    def get_config(self):
        """The arguments of `from_config`, with pairs compressed to text."""
        keys = self.pairs @ [self.input_dim, 1]
        # Small numbers, of which most bytes are 0.
        steps = np.diff(keys, prepend=0)
        return {"pairs": pack_array(steps), "input_dim": self.input_dim}

    @classmethod
    def from_config(cls, config):
        keys = np.cumsum(unpack_array(config["pairs"]))
        input_dim = config["input_dim"]
        return cls(np.stack(np.divmod(keys, input_dim), axis=1), input_dim)

    def __or__(self, other):
        """Relations that are in either."""
        if not isinstance(other, Relations):
            return NotImplemented
        if other.input_dim != self.input_dim:
            raise ValueError(
                "Relations can be joined if they are of the same objects. "
                f"Received: input_dim={self.input_dim} and "
                f"input_dim={other.input_dim}."
            )
        return Relations(
            np.concatenate([self.pairs, other.pairs]), self.input_dim
        )

    def __len__(self):
        """The number of pairs, each counted once."""
        return len(self.keys) // 2


def _count_within(lengths):
    """0, 1, ... up to each length, one after the other."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(starts, lengths)
