"""Seeds of k-means++, chosen in passes over a table of any size."""

import numpy as np

from keras_compembed.utils.validation import float_chunks

# So that a part and its differences stay in a core's cache.
_PART = 1 << 17


def k_means_seeds(table, number, rng, weight=None, first=(), num_candidates=1):
    """Chooses rows that span a table, as k-means++ starts."""
    ids = [int(row) for row in first]
    nearest = np.full(len(table), np.inf)
    for row in ids:
        np.minimum(nearest, squared_distances(table, table[row]), out=nearest)
    weight = np.ones(len(table)) if weight is None else np.asarray(weight)
    while len(ids) < number:
        chances = weight * nearest if ids else weight
        best = None
        for _ in range(num_candidates):
            row = _draw(chances, ids, rng)
            distances = squared_distances(table, table[row])
            np.minimum(distances, nearest, out=distances)
            left = (weight * distances).sum() if num_candidates > 1 else 0.0
            if best is None or left < best[0]:
                best = left, row, distances
        ids.append(best[1])
        nearest = best[2]
    return np.asarray(ids, "int64")


def squared_distances(table, point):
    """float64 array of the squared distances of rows from a point."""
    point = np.asarray(point, "float32")
    distances = np.empty(len(table))
    rows = max(1, _PART // table.shape[1])
    for start, chunk in float_chunks(table, rows):
        # Differences first: sums of products would not be 0 for equal rows.
        difference = chunk - point
        distances[start : start + rows] = np.einsum(
            "ij,ij->i", difference, difference
        )
    return distances


def _draw(chances, chosen, rng):
    """One id by `chances`, or any not chosen where they are all 0."""
    below = np.cumsum(chances)
    if below[-1] > 0:
        row = np.searchsorted(below, rng.random() * below[-1], side="right")
        # Where the product was rounded up to the sum.
        return int(min(row, np.searchsorted(below, below[-1])))
    free = np.ones(len(chances), bool)
    free[chosen] = False
    return int(rng.choice(np.flatnonzero(free)))
