"""Rows of quotients and of remainders for a table, by least squares."""

import keras
import numpy as np


def fit_quotient_remainder(
    table, num_remainders, operation, weight, iterations, verbose=0
):
    """Minimizes the weighted squared error of the two tables joined."""
    ids, columns = table.shape
    number = -(-ids // num_remainders)
    weight = np.ones(ids, "float32") if weight is None else weight
    # Ids beyond the last do not count.
    grid = np.zeros((number * num_remainders, columns), "float32")
    grid[:ids] = table
    grid = grid.reshape(number, num_remainders, columns)
    counts = np.zeros(number * num_remainders, "float32")
    counts[:ids] = weight
    counts = counts.reshape(number, num_remainders, 1)
    if operation == "concat":
        first = columns - columns // 2
        return (
            _mean(grid[:, :, :first], counts, 1),
            _mean(grid[:, :, first:], counts, 0),
        )
    fit = _mean_of_rest if operation == "add" else _ratio
    quotients = np.zeros((number, columns), "float32")
    if operation == "multiply":
        signs = np.random.default_rng(0).integers(2, size=quotients.shape)
        quotients = (2.0 * signs - 1).astype("float32")
    bar = keras.utils.Progbar(iterations, verbose=verbose)
    for _ in range(iterations):
        remainders = fit(grid, counts, quotients[:, None], 0)
        quotients = fit(grid, counts, remainders[None], 1)
        bar.add(1)
    if operation == "multiply":
        size = np.sqrt(np.mean(quotients**2, axis=0))
        size = np.where(size > 0, size, 1).astype("float32")
        quotients, remainders = quotients / size, remainders * size
    return quotients, remainders


def _mean(grid, counts, axis):
    total = np.sum(counts, axis=axis)
    sums = np.sum(counts * grid, axis=axis)
    return np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)


def _mean_of_rest(grid, counts, other, axis):
    return _mean(grid - other, counts, axis)


def _ratio(grid, counts, other, axis):
    products = np.sum(counts * grid * other, axis=axis)
    squares = np.sum(counts * other**2, axis=axis)
    return np.divide(
        products, squares, out=np.zeros_like(products), where=squares > 0
    )
