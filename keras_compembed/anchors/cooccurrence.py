"""Counts of ids that are near each other."""

import numbers

import numpy as np

from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Tokens at a time: a window's length times as many pairs are in memory.
_CHUNK = 1 << 18
# Distinct pairs that wait to be merged with all others.
_WAITING = 1 << 22
# Counts above it rank alike.
_MOST = (1 << 32) - 1


def count_pairs(tokens, input_dim, window, ignore=()):
    """Counts how often two different ids are at most `window` places apart."""
    window = check_positive_int("window", window)
    ignored = np.zeros(input_dim, bool)
    ignored[check_ids("ignore", list(ignore), input_dim)] = True
    stream = _join(tokens, input_dim, window)
    sums = np.zeros(0, "int64"), np.zeros(0, "int64")
    waiting = []
    for start in range(0, len(stream), _CHUNK):
        part = stream[start : start + _CHUNK + window].astype("int64")
        # Those at -1 stay there.
        part[ignored[part]] = -1
        keys = []
        for distance in range(1, window + 1):
            pairs = part[:-distance][:_CHUNK], part[distance:][:_CHUNK]
            low, high = np.minimum(*pairs), np.maximum(*pairs)
            kept = (low >= 0) & (low != high)
            keys.append(low[kept] * input_dim + high[kept])
        waiting.append(np.unique(np.concatenate(keys), return_counts=True))
        most = max(_WAITING, len(sums[0]))
        if sum(len(keys) for keys, _ in waiting) > most:
            sums, waiting = _merge([sums, *waiting]), []
    return _merge([sums, *waiting])


def mutual_information(keys, counts, input_dim):
    """Pointwise mutual information of counted pairs."""
    first, second = np.divmod(keys, input_dim)
    of_id = np.bincount(first, counts, input_dim)
    of_id += np.bincount(second, counts, input_dim)
    return np.log(counts * of_id.sum() / (of_id[first] * of_id[second]))


def among_top(keys, counts, input_dim, top):
    """Boolean array: pairs that are among the `top` of one of their ids."""
    first, second = np.divmod(keys, input_dim)
    # As keys are sorted, the others of an id are in order too: first the
    # lower ones, then the higher. A stable sort keeps that.
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
        f"`{name}` must hold sequences of integers.",
        shape=array.shape,
        dtype=array.dtype.name,
    )
    for extreme in (array.min(), array.max()):
        rule = f"`{name}` must hold ids from 0 to below {input_dim}."
        require(0 <= extreme < input_dim, rule, id=int(extreme))
    return array


def _merge(parts):
    """Sums of the counts of parts, each of sorted keys."""
    keys = np.concatenate([keys for keys, _ in parts])
    counts = np.concatenate([counts for _, counts in parts])
    # Quick for a few runs that are sorted already.
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    if len(keys):
        counts = np.add.reduceat(counts, starts)
    return keys[starts], counts


def _join(tokens, input_dim, window):
    """One array of all documents, with -1 between them."""
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
