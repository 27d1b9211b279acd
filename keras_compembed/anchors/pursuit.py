"""Orthogonal matching pursuit for many rows, optionally non-negative."""

import numpy as np

# Below this share of a row's length, agreement is float32 rounding.
NO_AGREEMENT = 1e-5


def pursue(products, lengths, gram, max_nonzeros, least_gains=None):
    """Weights of a few unit vectors that approximate rows."""
    explained = np.zeros((len(products), max_nonzeros), "float32")
    columns = np.zeros(explained.shape, "int64")
    weights = np.zeros(explained.shape)
    search = _Search(products, gram, max_nonzeros)
    for done in range(max_nonzeros):
        best, agreement = search.best()
        kept = agreement > NO_AGREEMENT * lengths[search.rows]
        search.keep(kept)
        rows = search.rows
        if not len(rows):
            break
        gains = search.add(best[kept])
        columns[rows, done] = best[kept]
        weights[rows] = search.weights
        explained[rows, done] = gains
        if least_gains is not None:
            search.keep(gains >= least_gains[rows])
    return columns, weights, np.cumsum(explained, axis=1)


def least_squares(gram, columns, used, goal):
    """Weights of the used vectors, by least squares."""
    equations = gram[columns[:, :, None], columns[:, None, :]]
    equations *= used[:, :, None] & used[:, None, :]
    diagonal = np.arange(columns.shape[1])
    # Nearly equal vectors must have a solution as well.
    equations[:, diagonal, diagonal] += np.where(used, NO_AGREEMENT**2, 1)
    return np.linalg.solve(equations, goal[:, :, None])[:, :, 0]


class _Search:
    """Rows in progress, all with the same number of vectors."""

    def __init__(self, products, gram, max_nonzeros):
        self._gram, self._gram32 = gram, gram.astype("float32")
        self._products = products
        self._done = 0
        shape = len(products), max_nonzeros
        self.rows = np.arange(len(products))
        self.weights = np.zeros(shape)
        self._columns = np.zeros(shape, "int64")
        self._directions = np.zeros((*shape, max_nonzeros))

    def keep(self, kept):
        if not kept.all():
            self.rows, self.weights = self.rows[kept], self.weights[kept]
            self._products = self._products[kept]
            self._columns = self._columns[kept]
            self._directions = self._directions[kept]

    def best(self):
        """The vectors closest to the residuals, and their agreement."""
        taken = self._columns[:, : self._done]
        left = self._products.copy()
        _subtract(left, self._gram32, taken, self.weights)
        agreement = np.abs(left, out=left)
        np.put_along_axis(agreement, taken, -np.inf, axis=1)
        best = np.argmax(agreement, axis=1)
        return best, np.take_along_axis(agreement, best[:, None], 1)[:, 0]

    def add(self, best):
        """Adds vectors; returns the decrease of squared distances."""
        done = self._done
        every = np.arange(len(best))
        shared = self._gram[best[:, None], self._columns[:, :done]]
        before = self._directions[:, :done, :done]
        parts = np.einsum("nij,nj->ni", before, shared)
        square = self._gram[best, best] - np.einsum("ni,ni->n", parts, parts)
        # The new part of a vector is at least this long, as it agrees with a
        # row. Large weights cause rounding errors.
        square = np.maximum(square, NO_AGREEMENT**2)
        new = self._directions[:, done]
        new[:, :done] = -np.einsum("nij,ni->nj", before, parts)
        new[:, done] = 1
        new /= np.sqrt(square)[:, None]
        self._columns[:, done] = best
        products = self._products[every[:, None], self._columns[:, : done + 1]]
        amount = np.einsum("ni,ni->n", new[:, : done + 1], products)
        self.weights += amount[:, None] * new
        self._done += 1
        return amount**2


def pursue_non_negative(products, lengths, gram, max_nonzeros, limits=None):
    """Positive weights of a few unit vectors that approximate rows."""
    search = _NonNegative(products, gram, max_nonzeros, limits)
    rows = np.arange(len(products))
    # Places of removed vectors may be filled again.
    for done in range(2 * max_nonzeros):
        rows = search.add(rows, NO_AGREEMENT * lengths[rows])
        if not len(rows):
            break
        width = min(done + 1, max_nonzeros)
        search.fit(rows, width)
        search.note(rows, width)
    explained = np.maximum.accumulate(search.explained, axis=1)
    return search.columns, search.weights, explained


class _NonNegative:
    def __init__(self, products, gram, max_nonzeros, limits):
        shape = len(products), max_nonzeros
        self.products, self.gram = products, gram
        self.gram32 = gram.astype("float32")
        self.columns = np.zeros(shape, "int64")
        self.used = np.zeros(shape, bool)
        self.weights = np.zeros(shape)
        self.explained = np.zeros(shape, "float32")
        self.allowed = np.ones(shape, bool)
        if limits is not None:
            self.allowed = np.arange(max_nonzeros) < limits[:, None]

    def add(self, rows, least):
        """Adds the vector closest to each residual."""
        free = ~self.used[rows] & self.allowed[rows]
        some = free.any(axis=1)
        rows, free, least = rows[some], free[some], least[some]
        # Fancy indexing copies.
        score = self.products[rows]
        columns, weights = self.columns[rows], self.weights[rows]
        _subtract(score, self.gram32, columns, weights)
        taken, places = np.nonzero(self.used[rows])
        score[taken, self.columns[rows[taken], places]] = -np.inf
        best = np.argmax(score, axis=1)
        found = score[np.arange(len(rows)), best] > least
        rows, best = rows[found], best[found]
        place = np.argmax(free[found], axis=1)
        self.columns[rows, place] = best
        self.used[rows, place] = True
        return rows

    def _goal(self, rows, width):
        columns = self.columns[rows, :width]
        products = self.products[rows[:, None], columns].astype("float64")
        return self.used[rows, :width] * products

    def note(self, rows, width):
        """Records the part explained by the first fit of each length."""
        explained = self.weights[rows, :width] * self._goal(rows, width)
        explained = explained.sum(axis=1)
        number = np.count_nonzero(self.used[rows, :width], axis=1)
        last = np.maximum(number - 1, 0)
        first = self.explained[rows, last] == 0
        self.explained[rows[first], last[first]] = explained[first]

    def fit(self, rows, width):
        """Fits the first `width` weights, which must stay positive."""
        while len(rows):
            used = self.used[rows, :width]
            goal = least_squares(
                self.gram,
                self.columns[rows, :width],
                used,
                self._goal(rows, width),
            )
            weights = self.weights[rows, :width]
            crossing = (goal <= 0) & used
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(crossing, weights / (weights - goal), np.inf)
            # A new weight is 0, and rounding may make its goal 0.
            part[np.isnan(part)] = 0
            first = part.min(axis=1, keepdims=True)
            weights = weights + np.minimum(first, 1) * (goal - weights)
            out = crossing & (part == first)
            weights[out] = 0
            self.weights[rows, :width] = weights
            self.used[rows, :width] = used & ~out
            rows = rows[out.any(axis=1)]


def _subtract(left, gram, columns, weights):
    """Subtracts products of weighted vectors from those of rows, in place."""
    for place in range(columns.shape[1]):
        weight = weights[:, place, None].astype("float32")
        if weight.any():
            part = gram[columns[:, place]]
            part *= weight
            left -= part
