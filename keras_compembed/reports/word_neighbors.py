"""Nearest neighbours of words, before and after a table is compressed."""

import dataclasses

import numpy as np

from keras_compembed.reports.table_rows import nearest_rows
from keras_compembed.reports.table_rows import row_parts


@dataclasses.dataclass(frozen=True)
class WordNeighbors:
    """The words nearest to one word."""

    word: str | int
    after: tuple
    before: tuple | None = None
    is_frequent: bool = True

    @property
    def num_shared(self):
        """How many words are near before and after."""
        return len(set(self.after) & set(self.before or ()))


def word_neighbors(
    rows,
    original=None,
    words=None,
    num_frequent=8,
    num_random=8,
    num_neighbors=8,
    seed=0,
):
    """Neighbours of the first words and of random others."""
    num_neighbors = min(num_neighbors, rows.shape[0] - 1)
    ids = _with_direction(rows if original is None else original)
    if words is not None:
        # Padding is often an empty word.
        ids = np.array([row for row in ids if words[row].strip()], "int64")
    if not num_neighbors or not len(ids):
        return []
    frequent, others = ids[:num_frequent], ids[num_frequent:]
    chosen = np.random.default_rng(seed).choice(
        others, min(num_random, len(others)), replace=False
    )
    queries = np.concatenate([frequent, np.sort(chosen)])
    after, _ = nearest_rows(rows, queries, num_neighbors)
    before = None
    if original is not None:
        before, _ = nearest_rows(original, queries, num_neighbors)

    def name(ids):
        return tuple(int(x) if words is None else words[x] for x in ids)

    return [
        WordNeighbors(
            word=name([row])[0],
            after=name(after[place]),
            before=None if before is None else name(before[place]),
            is_frequent=place < len(frequent),
        )
        for place, row in enumerate(queries)
    ]


def _with_direction(rows):
    """Ids of rows that are not zero."""
    return np.concatenate(
        [
            part.start + np.flatnonzero(rows[part].any(axis=1))
            for part in row_parts(rows.shape)
        ]
    )
