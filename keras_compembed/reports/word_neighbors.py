"""Nearest neighbors of words before and after compression."""

import dataclasses

import keras
import numpy as np

from keras_compembed.reports.fidelity import TableRows
from keras_compembed.reports.fidelity import nearest_rows
from keras_compembed.reports.fidelity import row_parts
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import require

_FREQUENT, _RANDOM, _NEIGHBORS = 8, 8, 8


@dataclasses.dataclass(frozen=True)
class WordNeighbors:
    """The nearest words of a word."""

    word: str | int
    after: tuple
    before: tuple = ()
    is_frequent: bool = True

    @property
    def shared(self):
        """Words that are near both before and after."""
        return set(self.after) & set(self.before)


def word_neighbors(layer, original=None, words=None):
    """Neighbors of the first words and of random others."""
    rows = TableRows("model", layer)
    before = None if original is None else TableRows("original", original)
    num_neighbors = min(_NEIGHBORS, rows.shape[0] - 1)
    ids = _with_direction(rows if before is None else before)
    if words is not None:
        # The padding word is often empty.
        ids = np.array([row for row in ids if words[row].strip()], "int64")
    if not num_neighbors or not len(ids):
        return []
    frequent, others = ids[:_FREQUENT], ids[_FREQUENT:]
    chosen = np.random.default_rng(0).choice(
        others, min(_RANDOM, len(others)), replace=False
    )
    queries = np.concatenate([frequent, np.sort(chosen)])

    def near(table):
        if table is None:
            return [()] * len(queries)
        found, _ = nearest_rows(table, queries, num_neighbors)
        return [name(row) for row in found]

    def name(ids):
        return tuple(int(x) if words is None else words[x] for x in ids)

    found = zip(name(queries), near(rows), near(before), strict=True)
    return [
        WordNeighbors(*each, is_frequent=place < len(frequent))
        for place, each in enumerate(found)
    ]


def _with_direction(rows):
    """Ids of non-zero rows."""
    parts = [rows[part].any(axis=1) for part in row_parts(rows.shape)]
    return np.flatnonzero(np.concatenate(parts))


def words_by_layer(layers, words):
    """The words of the rows of each layer."""
    if words is None:
        return {}
    rows = {name: layer.input_dim for name, layer in layers.items()}
    if not isinstance(words, dict):
        words = _as_list(words)
        found = {x: words for x, size in rows.items() if size == len(words)}
        require(
            found,
            f"`words` must have a word for each row of a layer, {rows}.",
            words=f"{len(words)} words",
        )
        return found
    words = {name: _as_list(own) for name, own in words.items()}
    for name, own in words.items():
        require(
            name in rows,
            "`words` must have names of embedding layers of the model: "
            f"{sorted(rows)}.",
            name=name,
        )
        require(
            len(own) == rows[name],
            f"`words` must have a word for each row of {name!r}, {rows[name]}.",
            words=f"{len(own)} words",
        )
    return words


def _as_list(words):
    require(
        not isinstance(words, str | keras.layers.Layer)
        and hasattr(words, "__iter__"),
        "`words` must be a list of words, or a dict from layer names to such "
        "lists.",
        words=words,
    )
    return [
        word.decode("utf-8", "replace")
        if isinstance(word, bytes)
        else str(word)
        for word in check_order("words", words)
    ]
