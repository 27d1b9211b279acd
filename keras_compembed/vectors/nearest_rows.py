"""Finds the stored rows nearest to vectors."""

import functools

import numpy as np

# The most scores of several queries in memory.
_SCORES = 1 << 22


class NearestRows:
    """Finds the rows of highest cosine with unit vectors."""

    def __init__(self, stored):
        self._stored = stored

    @functools.cached_property
    def _lengths(self):
        norms = self._stored.norms()
        return np.where(norms > 0, norms, 1)

    def of_one(self, query, left_out, topn, num_rows):
        """Rows and cosines, best first, without the float table."""
        scores = self._stored.scores(query) / self._lengths
        scores[left_out] = -np.inf
        (found,) = _without_left_out(*_best(scores[None, :num_rows], topn))
        return found

    def of_many(self, queries, own, topn, num_rows):
        """Yields rows and cosines for each query; `own` rows are left out."""
        size = max(1, _SCORES // min(self._stored.rows_at_once, num_rows))
        for start in range(0, len(queries), size):
            part = slice(start, start + size)
            found = self._best_of(queries[part], own[part], topn, num_rows)
            yield from _without_left_out(*found)

    def _best_of(self, queries, own, topn, num_rows):
        found, start = [], 0
        for rows in self._stored.parts(num_rows):
            end = start + len(rows)
            scores = queries @ (rows / self._lengths[start:end, None]).T
            here = (own >= start) & (own < end)
            scores[here, own[here] - start] = -np.inf
            places, values = _best(scores, topn)
            found.append((places + start, values))
            start = end
        places, values = map(np.hstack, zip(*found, strict=True))
        best, values = _best(values, topn)
        return np.take_along_axis(places, best, axis=1), values


def _best(scores, most):
    """Places and values of the highest scores of each row, best first."""
    count = scores.shape[1]
    most = min(most, count)
    places = np.argpartition(scores, count - most, axis=1)[:, count - most :]
    places.sort(axis=1)
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return tuple(np.take_along_axis(x, order, 1) for x in (places, values))


def _without_left_out(places, values):
    for rows, scores in zip(places, values, strict=True):
        yield rows[scores > -np.inf], scores[scores > -np.inf]
