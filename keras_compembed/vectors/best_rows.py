"""The best rows of many, of scores that come in parts."""

import numpy as np

# Groups of rows, for each that is looked for, whose best are compared first.
_GROUPS = 4


class BestRows:
    """Finds the rows with the highest scores for each of some queries."""

    def __init__(self, most):
        self._most = most
        self._num_rows = 0
        # Those found so far, query by query and best first.
        self._queries = self._rows = np.zeros(0, "int64")
        self._scores = np.zeros(0, "float32")

    def add(self, scores):
        """Takes scores, float `(queries, rows)`, of the rows that follow."""
        num_queries, num_rows = scores.shape
        if not self._num_rows:
            self._least = np.full(num_queries, np.finfo(scores.dtype).min)
        least = np.maximum(self._least, self._best_of_groups(scores))
        # Much faster than `nonzero` of two axes.
        places = np.flatnonzero(scores >= least[:, None])
        queries, rows = np.divmod(places, num_rows)
        values = np.concatenate([self._scores, scores[queries, rows]])
        rows = np.concatenate([self._rows, rows + self._num_rows])
        queries = np.concatenate([self._queries, queries])
        order = np.lexsort((rows, -values, queries))
        counts = np.bincount(queries, minlength=num_queries)
        firsts = np.cumsum(counts) - counts
        ranks = np.arange(len(order)) - np.repeat(firsts, counts)
        order = order[ranks < self._most]
        self._scores, self._rows = values[order], rows[order]
        self._queries = queries[order]
        self._num_rows += num_rows
        self._counts = np.minimum(counts, self._most)
        # Of equal ones, those that follow come too late.
        full = counts >= self._most
        worst = self._scores[np.cumsum(self._counts)[full] - 1]
        self._least[full] = np.nextafter(worst, np.inf, dtype=worst.dtype)

    def _best_of_groups(self, scores):
        """Scores that as many rows have as are looked for."""
        num_queries, num_rows = scores.shape
        size = num_rows // (_GROUPS * self._most)
        if size < 2:
            return np.finfo(scores.dtype).min
        groups = num_rows // size
        best = scores[:, : size * groups].reshape(num_queries, size, groups)
        best = best.max(axis=1)
        place = groups - self._most
        return np.partition(best, place, axis=1)[:, place]

    def found(self):
        """Yields the rows and scores of each query, best first."""
        end = np.cumsum(self._counts)
        for start, stop in zip(end - self._counts, end, strict=True):
            yield self._rows[start:stop], self._scores[start:stop]
