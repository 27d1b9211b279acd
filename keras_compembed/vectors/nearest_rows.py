"""The stored rows nearest to vectors."""

import functools

import numpy as np

from keras_compembed.vectors.best_rows import BestRows

# Scores of several queries that are held at once.
_SCORES = 1 << 22


class NearestRows:
    """Finds rows by their cosines with vectors."""

    def __init__(self, stored):
        self._stored = stored

    @functools.cached_property
    def _lengths(self):
        """Lengths of all rows; 1 for those that are 0."""
        norms = self._stored.norms()
        return np.where(norms > 0, norms, 1)

    def of_one(self, query, left_out, topn, num_rows):
        """Rows and cosines, best first, without a table."""
        scores = self._stored.scores(query) / self._lengths
        scores[left_out] = -np.inf
        best = BestRows(topn)
        best.add(scores[None, :num_rows])
        (found,) = best.found()
        return found

    def of_many(self, queries, own, topn, num_rows):
        """Yields rows and cosines for each query."""
        size = min(self._stored.rows_at_once, self._stored.shape[0])
        size = max(1, _SCORES // size)
        for start in range(0, len(queries), size):
            part = slice(start, start + size)
            best = self._best_of(queries[part], own[part], topn, num_rows)
            yield from best.found()

    def _best_of(self, queries, own, topn, num_rows):
        best, start = BestRows(topn), 0
        for rows in self._stored.parts():
            rows = rows[: num_rows - start]
            if not len(rows):
                break
            end = start + len(rows)
            lengths = self._lengths[start:end, None]
            scores = queries @ (rows / lengths).T
            here = (own >= start) & (own < end)
            scores[here, own[here] - start] = -np.inf
            best.add(scores)
            start = end
        return best
