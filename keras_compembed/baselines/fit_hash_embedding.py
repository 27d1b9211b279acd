"""Shared rows and importances for a table, by least squares in turns."""

import keras
import numpy as np

# Steps of conjugate gradients towards the rows of one turn: the next begins
# where these end.
_STEPS = 5


def fit_hash_embedding(
    table, places, owners, num_rows, importances, weight, iterations, verbose
):
    """Minimizes the weighted squared error of a `HashEmbedding`."""
    weight = np.ones(len(table), "float32") if weight is None else weight
    importances = np.array(importances, "float32")
    hashes = places.shape[1]
    to_rows = _GroupSums(places.ravel(), num_rows)
    to_owners = _GroupSums(owners, len(importances))
    rows = np.zeros((num_rows, table.shape[1]), "float32")
    bar = keras.utils.Progbar(iterations, verbose=verbose)
    for _ in range(iterations):
        own = importances[owners]
        rows = _solve_rows(rows, table, places, own, weight, to_rows)
        picked = rows[places]
        # A system of `hashes` equations for each owner.
        squares = np.einsum("nid,njd,n->nij", picked, picked, weight)
        products = np.einsum("nid,nd,n->ni", picked, table, weight)
        squares = to_owners(squares.reshape(-1, hashes**2))
        squares = squares.reshape(-1, hashes, hashes)
        products = to_owners(products)
        size = np.einsum("nii->n", squares) / hashes
        # What comes before counts a little, so that each has a solution.
        damping = 1e-4 * size + 1e-20
        squares += damping[:, None, None] * np.eye(hashes, dtype="float32")
        products += damping[:, None] * importances
        importances = np.linalg.solve(squares, products[:, :, None])[:, :, 0]
        importances = importances.astype("float32")
        bar.add(1)
    own = importances[owners]
    rows = _solve_rows(rows, table, places, own, weight, to_rows)
    return rows, importances


class _GroupSums:
    """Sums of the rows of an array by group, fast when called repeatedly."""

    def __init__(self, groups, number):
        self._order = np.argsort(groups, kind="stable")
        ordered = np.asarray(groups)[self._order]
        self._found, self._starts = np.unique(ordered, return_index=True)
        self._number = number

    def __call__(self, values):
        sums = np.zeros((self._number, *values.shape[1:]), values.dtype)
        sums[self._found] = np.add.reduceat(
            values[self._order], self._starts, axis=0
        )
        return sums


def _solve_rows(rows, table, places, own, weight, to_rows):
    """Steps of conjugate gradients, scaled by the diagonal."""
    columns = table.shape[1]

    def back(errors):
        errors = (weight[:, None] * own)[:, :, None] * errors[:, None, :]
        return to_rows(errors.reshape(-1, columns))

    def forward(rows):
        return np.einsum("nid,ni->nd", rows[places], own)

    diagonal = to_rows((weight[:, None] * own**2).reshape(-1, 1))
    scale = 1 / np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-30))
    residual = back(table - forward(rows))
    scaled = scale * residual
    direction = scaled
    old = np.sum(residual * scaled, axis=0)
    for _ in range(_STEPS):
        turned = back(forward(direction))
        curvature = np.sum(direction * turned, axis=0)
        # Columns that are solved stay.
        step = np.divide(
            old, curvature, out=np.zeros_like(old), where=curvature > 0
        )
        rows = rows + step * direction
        residual = residual - step * turned
        scaled = scale * residual
        new = np.sum(residual * scaled, axis=0)
        ratio = np.divide(new, old, out=np.zeros_like(old), where=old > 0)
        direction = scaled + ratio * direction
        old = new
    return rows.astype("float32")
