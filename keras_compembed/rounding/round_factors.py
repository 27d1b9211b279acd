"""Tables as narrow rounded rows times a matrix."""

import dataclasses

import numpy as np

from keras_compembed.rounding.round_rows import round_rows
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.utils.validation import float_chunks

# Rows at a time while integers are searched.
_CHUNK_ELEMENTS = 1 << 17
# More lower the error by less than a hundredth.
_SWEEPS = {8: 0, 4: 1, 2: 3}


def round_factors(
    table,
    rank,
    bits,
    block_size=None,
    scale_dtype="int8",
    sample_weight=None,
    seed=None,
):
    """Quantized rows, what they were rounded from, and their projection."""
    directions, _ = principal_directions(table, sample_weight)
    straight = directions[:, :rank].T
    gaussian = np.random.default_rng(seed).normal(size=(rank, rank))
    turned = np.linalg.qr(gaussian)[0] @ straight
    lowest = np.inf
    for start in (straight, turned):
        start = start.astype("float32")
        rows = _times(table, start.T)
        candidate = round_rows(rows, bits, block_size, scale_dtype)
        error = _error(rows, candidate, sample_weight)
        if error < lowest:
            lowest, projection, latents = error, start, rows
            rounded = candidate
    sweeps = _SWEEPS[bits]
    for _ in range(sweeps):
        projection = _fit_projection(table, rounded, sample_weight)
        rounded = _search(table, projection, rounded, bits)
    if sweeps:
        projection = _fit_projection(table, rounded, sample_weight)
        latents = _latents(table, projection)
    return rounded, latents, projection


def round_onto(table, projection, bits, block_size, scale_dtype, unit):
    """Quantized rows for a projection, and what they were rounded from."""
    latents = _latents(table, projection)
    rounded = round_rows(latents, bits, block_size, scale_dtype, unit)
    for _ in range(_SWEEPS[bits]):
        rounded = _search(table, projection, rounded, bits)
    return rounded, latents


def _latents(table, projection):
    inverse = np.linalg.pinv(projection.astype("float64"))
    return _times(table, inverse.astype("float32"))


def _times(table, matrix):
    return np.concatenate([rows @ matrix for _, rows in float_chunks(table)])


def principal_directions(table, sample_weight=None):
    """Directions of a table, and the energy along each, most first."""
    products = np.zeros((table.shape[1],) * 2)
    for start, rows in float_chunks(table):
        products += _weighted(rows, sample_weight, start).T @ rows
    energies, directions = np.linalg.eigh(products)
    return directions[:, ::-1], np.maximum(energies[::-1], 0)


def rank_of_energy(table, share, sample_weight=None):
    """The smallest rank that keeps a share of a table's weighted energy."""
    _, energies = principal_directions(table, sample_weight)
    kept = np.cumsum(energies)
    return int(np.searchsorted(kept, share * kept[-1])) + 1


def _weighted(rows, sample_weight, start):
    if sample_weight is None:
        return rows
    return rows * sample_weight[start : start + len(rows), None]


def _error(table, rounded, sample_weight):
    """The weighted squared error of a rounded table."""
    error = 0.0
    for start, rows in float_chunks(table):
        rest = rows - rounded.part(start, start + len(rows)).decode()
        error += np.sum(_weighted(rest, sample_weight, start) * rest)
    return error


def _fit_projection(table, rounded, sample_weight):
    """The projection of least weighted squared error for rounded rows."""
    rank = rounded.integers.shape[1]
    squares = np.zeros((rank, rank))
    products = np.zeros((rank, table.shape[1]))
    for start, rows in float_chunks(table):
        part = rounded.part(start, start + len(rows)).decode()
        weighted = _weighted(part, sample_weight, start).T
        squares += weighted @ part
        products += weighted @ rows
    solution = np.linalg.pinv(squares, hermitian=True) @ products
    return solution.astype("float32")


def _search(table, projection, rounded, bits):
    """Rows rounded again for a projection, from those that there are."""
    gram = projection @ projection.T
    integers = np.empty_like(rounded.integers)
    scales = np.empty_like(rounded.scales)
    size = max(1, _CHUNK_ELEMENTS // len(gram))
    for start, rows in float_chunks(table, size):
        stop = start + len(rows)
        part = rounded.part(start, stop)
        part = _search_part(rows @ projection.T, gram, part, bits)
        integers[start:stop], scales[start:stop] = part
    return dataclasses.replace(rounded, integers=integers, scales=scales)


def _search_part(targets, gram, rounded, bits):
    """Integers and scales of some rows, each the best given all others."""
    lowest, highest = integer_range(bits)
    size, unit = rounded.block_size, rounded.unit
    # Columns first, as one is searched at a time.
    integers = rounded.integers.T.astype("float32")
    scales = rounded.scales.T.astype("float32")
    rest = (targets - rounded.decode() @ gram).T.copy()
    for column, own in enumerate(np.diagonal(gram)):
        if own <= 0:
            continue
        steps = scales[column // size] * unit
        change = rest[column] / own
        np.divide(change, steps, out=change, where=steps > 0)
        change[steps == 0] = 0
        new = np.clip(np.rint(integers[column] + change), lowest, highest)
        change = (new - integers[column]) * steps
        integers[column] = new
        rest -= gram[column][:, None] * change
    largest = np.iinfo(rounded.scales.dtype).max
    for block in range(len(scales)):
        columns = slice(block * size, (block + 1) * size)
        part = integers[columns]
        squares = np.einsum("cr,cr->r", part, gram[columns, columns] @ part)
        products = np.einsum("cr,cr->r", part, rest[columns])
        change = np.zeros_like(products)
        np.divide(products, squares * unit, out=change, where=squares > 0)
        new = np.clip(np.rint(scales[block] + change), 0, largest)
        change = (new - scales[block]) * unit
        scales[block] = new
        rest -= gram[:, columns] @ (part * change)
    return integers.T, scales.T
