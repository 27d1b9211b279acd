"""Orthogonal matching pursuit with weights that must not cross 0."""

import numpy as np

from keras_compembed.transforms.pursuit import NO_AGREEMENT
from keras_compembed.transforms.pursuit import least_squares


def pursue_constrained(
    products, lengths, gram, max_nonzeros, non_negative, l1, limits=None
):
    """Weights of a few vectors of length 1 that add up to rows."""
    search = _Pursuit(products, gram, max_nonzeros, l1, non_negative, limits)
    rows = np.arange(len(products))
    # Places of vectors that were taken out may be filled once more.
    for done in range(2 * max_nonzeros):
        rows = search.add(rows, NO_AGREEMENT * lengths[rows])
        if not len(rows):
            break
        width = min(done + 1, max_nonzeros)
        search.fit(rows, width)
        search.note(rows, width)
    explained = np.maximum.accumulate(search.explained, axis=1)
    return search.columns, search.weights * search.signs, explained


class _Pursuit:
    """Vectors and weights of rows."""

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
        """Adds the vector that agrees most with what is left."""
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

    def _least_squares(self, rows, width):
        """The best first `width` weights of rows, were there no sign."""
        return least_squares(
            self.gram,
            self.columns[rows, :width],
            self.signs[rows, :width].astype("float64"),
            self._goal(rows, width),
        )

    def _goal(self, rows, width):
        columns, signs = self.columns[rows, :width], self.signs[rows, :width]
        goal = signs * self.products[rows[:, None], columns].astype("float64")
        return goal - np.abs(signs) * self.l1[columns]

    def note(self, rows, width):
        """Keeps what the first weights of rows explain that are so many."""
        explained = self.weights[rows, :width] * self._goal(rows, width)
        explained = explained.sum(axis=1)
        signs = self.signs[rows, :width]
        last = np.maximum(np.count_nonzero(signs, axis=1) - 1, 0)
        first = self.explained[rows, last] == 0
        self.explained[rows[first], last[first]] = explained[first]

    def fit(self, rows, width):
        """Fits the first `width` weights, which must stay above 0."""
        while len(rows):
            goal = self._least_squares(rows, width)
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
