"""Pairs of related objects."""

import numbers
import os

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.anchors.wordnet import wordnet_pairs
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Uses about 1.6 GB while pairs are made.
_MOST_PAIRS = 20_000_000
# Tokens at a time. Memory holds `window` times as many pairs.
_TOKENS = 1 << 18
# Distinct pairs to collect before they are merged.
_WAITING = 1 << 22
# Higher counts rank alike.
_MOST = (1 << 32) - 1


@keras.saving.register_keras_serializable(package="keras_compembed")
class Relations:
    """Pairs of related objects.

    Relations are symmetric. Duplicate pairs count once, and pairs of an object
    with itself are dropped. `len(relations)` is the number of pairs, and
    `relations | others` is the union for the same objects.

    Example:

    >>> relations = Relations([(0, 1), (3, 1)], input_dim=5)
    >>> relations |= Relations.from_clusters([7, 8, 9, 8, 7])
    >>> relations.pairs.tolist()
    [[0, 1], [0, 4], [1, 3]]

    Args:
        pairs: Integer array `(pairs, 2)` of ids.
        input_dim: Integer, at most 2**31. The number of objects.

    Attributes:
        input_dim: Integer.
        keys: Sorted int64 array `(2 * pairs,)`, `u * input_dim + v` for each
            pair in both orders.

    Raises:
        ValueError: If an id is not from 0 to `input_dim - 1`.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.3
    """

    def __init__(self, pairs: ArrayLike, input_dim: int):
        # The keys of larger ones would not fit in int64.
        self.input_dim = check_positive_int(
            "input_dim", input_dim, maximum=2**31
        )
        pairs = np.asarray(pairs)
        if not pairs.size:
            pairs = np.zeros((0, 2), "int64")
        is_table = pairs.ndim == 2 and pairs.shape[1] == 2
        rule = "`pairs` must have two columns of ids."
        require(is_table, rule, shape=pairs.shape)
        first, second = (
            check_ids("pairs", ids, self.input_dim).astype("int64")
            for ids in pairs.T
        )
        apart = first != second
        first, second = first[apart], second[apart]
        size = self.input_dim
        keys = np.append(first * size + second, second * size + first)
        # `np.unique` takes 70 times as long for millions of keys.
        keys.sort()
        self.keys = keys[np.diff(keys, prepend=-1) != 0]

    @classmethod
    def from_clusters(cls, labels: ArrayLike) -> "Relations":
        """Relates all objects in a cluster with each other.

        Example:

        >>> Relations.from_clusters([0, 1, 0, -1, 1, -1]).pairs.tolist()
        [[0, 2], [1, 4]]

        Args:
            labels: Integer array `(input_dim,)`, the cluster of each object,
                negative for none. At most 20,000,000 pairs.
        """
        labels = np.asarray(labels)
        require(
            labels.ndim == 1 and labels.dtype.kind in "iu",
            "`labels` must have one integer for each object.",
            labels=labels,
        )
        order = np.argsort(labels, kind="stable")
        order = order[np.searchsorted(labels[order], 0) :]
        ends = np.searchsorted(labels[order], labels[order], side="right")
        # Pair each object with the later ones of its cluster.
        places = np.arange(len(order))
        lengths = ends - places - 1
        rule = f"`labels` must make at most {_MOST_PAIRS:,} pairs."
        require(lengths.sum() <= _MOST_PAIRS, rule, pairs=int(lengths.sum()))
        pairs = np.repeat(places, lengths), _ranges(places + 1, lengths)
        return cls(np.stack([order[part] for part in pairs], 1), len(labels))

    @classmethod
    def from_tokens(
        cls,
        tokens: ArrayLike,
        input_dim: int,
        window: int = 10,
        min_count: int = 1,
        top: int | None = None,
        min_information: float | None = None,
        ignore: ArrayLike = (),
    ) -> "Relations":
        """Relates ids that occur close to each other in a text.

        Example:

        >>> tokens = [3, 1, 0, 4, 3, 1]
        >>> Relations.from_tokens(tokens, 5, window=1).pairs.tolist()
        [[0, 1], [0, 4], [1, 3], [3, 4]]

        Args:
            tokens: Integer array of ids in text order, or a sequence of such
                arrays, one for each document.
            input_dim: Integer, the number of ids.
            window: Positive integer, the largest distance. Defaults to `10`.
            min_count: Positive integer, least count of a pair. Defaults to `1`.
            top: Optional positive integer. Keeps only the `top` most frequent
                neighbors of each id. Defaults to `None`: all.
            min_information: Optional number. Keeps pairs with at least this
                pointwise mutual information,
                `log(count(u, v) * total / (count(u) * count(v)))`, in nats.
                Pairs above 0 are more frequent than chance. Defaults to `None`.
            ignore: Ids without relations, such as padding. Defaults to none.
        """
        check_positive_int("min_count", min_count)
        check_positive_int("input_dim", input_dim, maximum=2**31)
        keys, counts = count_pairs(tokens, input_dim, window, ignore)
        kept = counts >= min_count
        if min_information is not None:
            information = mutual_information(keys, counts, input_dim)
            kept &= information >= min_information
        keys, counts = keys[kept], counts[kept]
        if top is not None:
            check_positive_int("top", top)
            keys = keys[among_top(keys, counts, input_dim, top)]
        return cls(np.stack(np.divmod(keys, input_dim), axis=1), input_dim)

    @classmethod
    def from_wordnet(
        cls, vocabulary: list | tuple, folder: str | os.PathLike
    ) -> "Relations":
        """Relates words that are directly related in WordNet.

        These are synonyms, antonyms, and hypernyms with their hyponyms.
        Inflected words ("dogs") have the relations of their base form ("dog").

        Example:

        >>> relations = Relations.from_wordnet(
        ...     ["[UNK]", "dogs", "puppy", "paper"], "WordNet-3.0/dict"
        ... )
        >>> relations.pairs.tolist()
        [[1, 2]]

        Args:
            vocabulary: Sequence of words. The position of a word is its id.
            folder: Path of the folder of WordNet's database files
                (`data.noun` and so on; `dict` in its distribution), or of a
                zip file of that folder, e.g. NLTK's `corpora/wordnet.zip`.

        References:
            - [Liang et al., 2021](https://arxiv.org/abs/2003.08197),
              appendix E.1
            - Miller, WordNet: A Lexical Database for English, 1995
        """
        vocabulary = check_order("vocabulary", vocabulary)
        return cls(wordnet_pairs(vocabulary, folder), len(vocabulary))

    @property
    def pairs(self) -> np.ndarray:
        """int64 array `(pairs, 2)`, sorted, each with the lower id first."""
        first, second = np.divmod(self.keys, self.input_dim)
        return np.stack([first, second], axis=1)[first < second]

    def free_entries(self, anchor_ids: ArrayLike) -> tuple:
        """Returns the entries of a transform that are not shrunk.

        Entry (u, c) is one of them if u is related to the object that anchor c
        represents. In the paper, these entries are 1 in 1 - S(G).

        Args:
            anchor_ids: Integer array `(num_anchors,)`, -1 for no object.

        Returns:
            int64 arrays `offsets` `(input_dim + 1,)` and `columns`. The sorted
            columns of row u are `columns[offsets[u]:offsets[u + 1]]`.
        """
        anchor_ids = np.asarray(anchor_ids)
        anchors = np.flatnonzero(anchor_ids != -1)
        ids = check_ids("anchor_ids", anchor_ids[anchors], self.input_dim)
        ids = ids.astype("int64")
        starts = np.searchsorted(self.keys, ids * self.input_dim)
        ends = np.searchsorted(self.keys, (ids + 1) * self.input_dim)
        lengths = ends - starts
        rows = self.keys[_ranges(starts, lengths)] % self.input_dim
        columns = np.repeat(anchors, lengths)
        order = np.lexsort((columns, rows))
        in_row = np.bincount(rows, minlength=self.input_dim)
        return np.append(0, np.cumsum(in_row)), columns[order]

    def get_config(self) -> dict:
        """Returns the arguments of `from_config`, with compressed pairs."""
        keys = self.pairs @ [self.input_dim, 1]
        # Small numbers compress well.
        steps = np.diff(keys, prepend=0)
        return {"pairs": pack_array(steps), "input_dim": self.input_dim}

    @classmethod
    def from_config(cls, config):
        keys = np.cumsum(unpack_array(config["pairs"]))
        input_dim = config["input_dim"]
        return cls(np.stack(np.divmod(keys, input_dim), axis=1), input_dim)

    def __or__(self, other):
        if not isinstance(other, Relations):
            return NotImplemented
        require(
            other.input_dim == self.input_dim,
            "`|` must join relations of the same number of objects, "
            f"{self.input_dim}.",
            input_dim=other.input_dim,
        )
        pairs = np.concatenate([self.pairs, other.pairs])
        return Relations(pairs, self.input_dim)

    def __len__(self):
        return len(self.keys) // 2


def _ranges(starts, lengths):
    """The integers of several ranges, one range after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


def count_pairs(tokens, input_dim, window, ignore=()):
    """Counts how often two different ids are at most `window` apart."""
    window = check_positive_int("window", window)
    ignored = np.zeros(input_dim, bool)
    ignored[check_ids("ignore", list(ignore), input_dim)] = True
    stream = _join(tokens, input_dim, window)
    sums = np.zeros(0, "int64"), np.zeros(0, "int64")
    waiting = []
    for start in range(0, len(stream), _TOKENS):
        part = stream[start : start + _TOKENS + window].astype("int64")
        part[ignored[part]] = -1
        keys = []
        for distance in range(1, window + 1):
            pairs = part[:-distance][:_TOKENS], part[distance:][:_TOKENS]
            low, high = np.minimum(*pairs), np.maximum(*pairs)
            kept = (low >= 0) & (low != high)
            keys.append(low[kept] * input_dim + high[kept])
        waiting.append(np.unique(np.concatenate(keys), return_counts=True))
        most = max(_WAITING, len(sums[0]))
        if sum(len(keys) for keys, _ in waiting) > most:
            sums, waiting = _merge_counts([sums, *waiting]), []
    return _merge_counts([sums, *waiting])


def mutual_information(keys, counts, input_dim):
    """Pointwise mutual information of counted pairs."""
    first, second = np.divmod(keys, input_dim)
    of_id = np.bincount(first, counts, input_dim)
    of_id += np.bincount(second, counts, input_dim)
    return np.log(counts * of_id.sum() / (of_id[first] * of_id[second]))


def among_top(keys, counts, input_dim, top):
    """Boolean array: whether a pair is in the `top` of one of its ids."""
    first, second = np.divmod(keys, input_dim)
    # As keys are sorted, the partners of an id are in order as well: lower
    # ones first, then higher ones. A stable sort keeps that order.
    ids = np.concatenate([second, first])
    counts = np.minimum(counts, _MOST)
    order = np.argsort(ids << 32 | np.tile(_MOST - counts, 2), kind="stable")
    ids = ids[order]
    rank = np.arange(len(ids)) - np.searchsorted(ids, ids)
    kept = np.zeros(len(keys), bool)
    kept[order[rank < top] % len(keys)] = True
    return kept


def check_ids(name, ids, input_dim):
    """Returns `ids` as an integer array, or raises if one is unknown."""
    array = np.asarray(ids)
    if not array.size and array.ndim == 1:
        return array.astype("int64")
    require(
        array.ndim == 1 and array.dtype.kind in "iu",
        f"`{name}` must have sequences of integers.",
        shape=array.shape,
        dtype=array.dtype.name,
    )
    for extreme in (array.min(), array.max()):
        rule = f"`{name}` must have ids from 0 to below {input_dim}."
        require(0 <= extreme < input_dim, rule, id=int(extreme))
    return array


def _merge_counts(parts):
    """Adds up the counts of parts with sorted keys."""
    keys = np.concatenate([keys for keys, _ in parts])
    counts = np.concatenate([counts for _, counts in parts])
    # A stable sort is fast for a few sorted runs.
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if len(keys):
        counts = np.add.reduceat(counts, starts)
    return keys[starts], counts


def _join(tokens, input_dim, window):
    """One array of all documents, separated by -1."""
    if not isinstance(tokens, np.ndarray):
        tokens = list(tokens)
    if len(tokens) and isinstance(tokens[0], numbers.Integral):
        tokens = np.asarray(tokens)
    if isinstance(tokens, np.ndarray) and tokens.ndim == 1:
        return check_ids("tokens", tokens, input_dim)
    gap = np.full(window, -1, "int32")
    parts = [gap]
    for document in tokens:
        ids = check_ids("tokens", document, input_dim)
        parts += [ids.astype("int32"), gap]
    return np.concatenate(parts)
