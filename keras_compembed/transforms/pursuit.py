"""Orthogonal matching pursuit of many rows at once."""

import numpy as np

# Agreement below this part of a row's length is rounding of float32.
_NONE = 1e-5


def pursue(
    products,
    lengths,
    gram,
    max_nonzeros,
    non_negative,
    l1,
    limits=None,
    least_gains=None,
):
    """Weights of a few vectors of length 1 that add up to rows.

    Args:
        products: float32 array `(rows, vectors)`, of rows with vectors.
        lengths: Array `(rows,)`, of the rows.
        gram: float64 array `(vectors, vectors)`, of vectors with each other.
        max_nonzeros: Integer.
        non_negative: Boolean.
        l1: Array `(vectors,)`, the cost of a weight of 1.
        limits: Optional integer array `(rows,)` of at most `max_nonzeros`,
            the most vectors of each row.
        least_gains: Optional array `(rows,)`. No further vector is added to a
            row once one lowered its squared distance by less.

    Returns:
        columns: Integer array `(rows, max_nonzeros)`, the vectors.
        weights: float64 array like `columns`, 0 for places not used.
        explained: float32 array like `columns`: by how much the squared
            distance of a row (with `l1`, twice the loss) was lower with so
            many vectors, one more in each column.
    """
    search = _Pursuit(products, gram, max_nonzeros, l1, non_negative, limits)
    constrained = non_negative or np.any(l1)
    rows = np.arange(len(products))
    # Places of vectors that were taken out may be filled once more.
    rounds = max_nonzeros * (2 if constrained else 1)
    for done in range(rounds):
        rows = search.add(rows, _NONE * lengths[rows])
        if not len(rows):
            break
        width = min(done + 1, max_nonzeros)
        if constrained:
            search.fit_constrained(rows, width)
        else:
            search.weights[rows, :width] = search.fit(rows, width)
        gains = search.note(rows, width)
        if least_gains is not None:
            rows = rows[gains >= least_gains[rows]]
    explained = np.maximum.accumulate(search.explained, axis=1)
    return search.columns, search.weights * search.signs, explained


class _Pursuit:
    """Vectors and weights of rows.

    Signs are those of the weights, 0 where a place is free. `weights` hold
    what is multiplied with them.
    """

    def __init__(self, products, gram, max_nonzeros, l1, non_negative, limits):
        shape = len(products), max_nonzeros
        self.products, self.gram, self.l1 = products, gram, l1
        self.gram32 = gram.astype("float32")
        self.non_negative = non_negative
        self.columns = np.zeros(shape, "int64")
        self.signs = np.zeros(shape, "int8")
        self.weights = np.zeros(shape)
        self.explained = np.zeros(shape, "float32")
        self.allowed = np.ones(shape, bool)
        if limits is not None:
            self.allowed = np.arange(max_nonzeros) < limits[:, None]

    def add(self, rows, least):
        """Adds the vector that agrees most with what is left.

        Returns:
            Those of `rows` that had a free place and such a vector.
        """
        free = (self.signs[rows] == 0) & self.allowed[rows]
        some = free.any(axis=1)
        rows, free, least = rows[some], free[some], least[some]
        left = self._left(rows)
        score = left if self.non_negative else np.abs(left)
        score = score - self.l1.astype("float32")
        taken, places = np.nonzero(self.signs[rows])
        score[taken, self.columns[rows[taken], places]] = -np.inf
        best = np.argmax(score, axis=1)
        every = np.arange(len(rows))
        found = score[every, best] > least
        rows, best = rows[found], best[found]
        place = np.argmax(free[found], axis=1)
        self.columns[rows, place] = best
        self.signs[rows, place] = np.where(left[every[found], best] < 0, -1, 1)
        return rows

    def fit(self, rows, width):
        """Least squares for the first `width` weights of rows."""
        columns = self.columns[rows, :width]
        signs = self.signs[rows, :width].astype("float64")
        gram = self.gram[columns[:, :, None], columns[:, None, :]]
        gram *= signs[:, :, None] * signs[:, None, :]
        # Free places get weights of 0.
        diagonal = np.arange(width)
        gram[:, diagonal, diagonal] += signs == 0
        goal = self._goal(rows, width)
        return np.linalg.solve(gram, goal[:, :, None])[:, :, 0]

    def _goal(self, rows, width):
        columns, signs = self.columns[rows, :width], self.signs[rows, :width]
        goal = signs * self.products[rows[:, None], columns].astype("float64")
        return goal - np.abs(signs) * self.l1[columns]

    def note(self, rows, width):
        """Keeps what the first weights of rows explain that are so many.

        Where one makes way for another, their number comes again: with room
        for no more, it would not have come to that.

        Returns:
            Array `(rows,)`, by how much more than with one less.
        """
        signs = self.signs[rows, :width]
        explained = self.weights[rows, :width] * self._goal(rows, width)
        explained = explained.sum(axis=1)
        last = np.maximum(np.count_nonzero(signs, axis=1) - 1, 0)
        first = self.explained[rows, last] == 0
        self.explained[rows[first], last[first]] = explained[first]
        before = np.where(last > 0, self.explained[rows, last - 1], 0)
        return explained - before

    def fit_constrained(self, rows, width):
        """The same for weights that must stay above 0.

        From the weights as they are towards those of least squares, up to
        the first that reaches 0: it is taken out, and so on. This is the
        inner loop of Lawson & Hanson's method.
        """
        while len(rows):
            goal = self.fit(rows, width)
            weights = self.weights[rows, :width]
            crossing = (goal <= 0) & (self.signs[rows, :width] != 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(crossing, weights / (weights - goal), np.inf)
            # A new weight is 0, and its goal may be 0 by rounding.
            part[np.isnan(part)] = 0
            first = part.min(axis=1, keepdims=True)
            step = np.minimum(first, 1)
            weights = weights + step * (goal - weights)
            out = crossing & (part == first)
            weights[out] = 0
            self.weights[rows, :width] = weights
            signs = self.signs[rows, :width]
            signs[out] = 0
            self.signs[rows, :width] = signs
            rows = rows[out.any(axis=1)]

    def _left(self, rows):
        """Products of what is left of rows with all vectors."""
        left = self.products[rows]
        signed = (self.weights[rows] * self.signs[rows]).astype("float32")
        for place in range(signed.shape[1]):
            weights = signed[:, place, None]
            if weights.any():
                left -= weights * self.gram32[self.columns[rows, place]]
        return left
