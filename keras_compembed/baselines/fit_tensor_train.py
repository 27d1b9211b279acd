"""A tensor train for a table."""

import keras
import numpy as np


def fit_tensor_train(
    table, row_factors, column_factors, ranks, weight, iterations, verbose=0
):
    """Cores whose train is near a table."""
    ids, columns = table.shape
    shapes = row_factors, column_factors, ranks
    room = int(np.prod(row_factors))
    if weight is None and room == ids:
        return _decompose(table, *shapes)
    parts = np.zeros((room, 1), "float32")
    parts[:ids, 0] = 1 if weight is None else weight / weight.max()
    wanted = np.zeros((room, columns), "float32")
    wanted[:ids] = table
    filled = wanted
    bar = keras.utils.Progbar(iterations, verbose=verbose)
    for _ in range(iterations):
        cores = _decompose(filled, *shapes)
        rows = _compose(cores, *shapes)
        filled = rows + parts * (wanted - rows)
        bar.add(1)
    return cores


def _decompose(table, row_factors, column_factors, ranks):
    """TT-SVD, with the eigenvectors of small squares in place of an SVD."""
    number = len(row_factors)
    grid = table.reshape(*row_factors, *column_factors)
    order = [axis for k in range(number) for axis in (k, number + k)]
    rest = grid.transpose(order)
    cores = []
    for k in range(number - 1):
        size = ranks[k] * row_factors[k] * column_factors[k]
        rest = rest.reshape(size, -1)
        vectors = _leading(rest, ranks[k + 1])
        cores.append(vectors)
        rest = vectors.T @ rest
    cores.append(rest)
    return [
        np.ascontiguousarray(
            core.reshape(ranks[k], row_factors[k], -1)
            .transpose(1, 0, 2)
            .reshape(row_factors[k], -1),
            "float32",
        )
        for k, core in enumerate(_balanced(cores))
    ]


def _leading(matrix, rank):
    """Left singular vectors `(rows, rank)` of the largest values."""
    if matrix.shape[0] > matrix.shape[1]:
        return np.linalg.svd(matrix, full_matrices=False)[0][:, :rank]
    square = matrix.astype("float64")
    _, vectors = np.linalg.eigh(square @ square.T)
    return vectors[:, ::-1][:, :rank].astype("float32")


def _balanced(cores):
    """Cores of the same product, with numbers of the same size."""
    sizes = [np.sqrt(np.mean(core.astype("float64") ** 2)) for core in cores]
    if not min(sizes) > 0:
        return cores
    mean = np.exp(np.mean(np.log(sizes)))
    return [
        core * (mean / size) for core, size in zip(cores, sizes, strict=True)
    ]


def _compose(cores, row_factors, column_factors, ranks):
    """All rows of a train."""
    rows = np.ones((1, 1, 1), "float32")
    for k, core in enumerate(cores):
        core = core.reshape(
            row_factors[k], ranks[k], column_factors[k], ranks[k + 1]
        )
        ids, columns, _ = rows.shape
        rows = np.einsum("ida,racb->irdcb", rows, core, optimize=True)
        rows = rows.reshape(
            ids * row_factors[k], columns * column_factors[k], ranks[k + 1]
        )
    return rows[:, :, 0]
