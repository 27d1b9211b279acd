"""Orthogonal matching pursuit of many rows at once."""

import numpy as np

# Agreement below this part of a row's length is rounding of float32.
NO_AGREEMENT = 1e-5


def pursue(products, lengths, gram, max_nonzeros, least_gains=None):
    """Weights of a few vectors of length 1 that add up to rows."""
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


def fit_weights(products, gram, columns, counts):
    """Least squares for the weights of vectors that are known."""
    used = np.arange(columns.shape[1]) < counts[:, None]
    goal = used * np.take_along_axis(products, columns, axis=1)
    return least_squares(gram, columns, used.astype("float64"), goal)


def least_squares(gram, columns, signs, goal):
    """Weights of vectors, each times its sign, that have such products."""
    equations = gram[columns[:, :, None], columns[:, None, :]]
    equations *= signs[:, :, None] * signs[:, None, :]
    diagonal = np.arange(columns.shape[1])
    # Vectors that are nearly the same have a solution too.
    equations[:, diagonal, diagonal] += np.where(signs == 0, 1, NO_AGREEMENT**2)
    return np.linalg.solve(equations, goal[:, :, None])[:, :, 0]


class _Search:
    """Rows that are not done, which have as many vectors each."""

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
        """Vectors that agree most with what is left, and how much."""
        left = self._products.copy()
        weights = self.weights.astype("float32")
        for place in range(self._done):
            part = self._gram32[self._columns[:, place]]
            part *= weights[:, place, None]
            left -= part
        agreement = np.abs(left, out=left)
        taken = self._columns[:, : self._done]
        np.put_along_axis(agreement, taken, -np.inf, axis=1)
        best = np.argmax(agreement, axis=1)
        return best, np.take_along_axis(agreement, best[:, None], 1)[:, 0]

    def add(self, best):
        """Adds vectors; by how much the squared distances are lower."""
        done = self._done
        every = np.arange(len(best))
        shared = self._gram[best[:, None], self._columns[:, :done]]
        before = self._directions[:, :done, :done]
        parts = np.einsum("nij,nj->ni", before, shared)
        square = self._gram[best, best] - np.einsum("ni,ni->n", parts, parts)
        # What is new of a vector is at least so long, since so much of it
        # agrees with a row; but large weights bring rounding.
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
