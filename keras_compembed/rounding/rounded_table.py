"""Quantized tables, optionally low-rank."""

import dataclasses
import functools
import warnings

import numpy as np

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

# Values at a time, to fit in caches.
_CHUNK_ELEMENTS = 1 << 16
# Smaller integer scales are off by more than a tenth.
_COARSE = 5
# Scales may exceed the room by this factor, with little clipping.
_ROOM = 1.1
# First scales, relative to the scale that clips no value. Fewer bits gain more
# from clipping the largest values.
_SHARES = {
    8: (1.0, 0.9),
    4: tuple(np.linspace(0.5, 1.0, 6)),
    2: tuple(np.linspace(0.2, 1.0, 8)),
}
# For short blocks, the best scale may be far from the others, even above 1.
FINE_SHARES = {
    8: tuple(np.linspace(0.9, 1.3, 24)),
    4: tuple(np.linspace(0.5, 1.3, 32)),
    2: tuple(np.linspace(0.2, 1.1, 16)),
}
# The same while integers are searched.
_SEARCHED_ELEMENTS = 1 << 17
# The mean row is subtracted, unless that raises the error of this number of
# rows by this factor. Nearly all files have it, so sizes can be predicted.
_ASKED, _MOST_ERROR = 1024, 1.05
# More sweeps lower the error by less than 1%.
_SWEEPS = {8: 0, 4: 1, 2: 3}


@dataclasses.dataclass(frozen=True)
class RoundedTable:
    """A quantized table: `integers * scales * unit + mean_row`."""

    integers: np.ndarray
    scales: np.ndarray
    unit: np.float32
    block_size: int
    mean_row: np.ndarray

    def part(self, start, stop):
        """A slice of the rows."""
        return dataclasses.replace(
            self,
            integers=self.integers[start:stop],
            scales=self.scales[start:stop],
        )

    def decode(self):
        """The float32 array `(rows, width)`."""
        scales = self.scales.astype("float32") * self.unit
        if scales.shape[1] > 1:
            width = self.integers.shape[1]
            scales = np.repeat(scales, self.block_size, 1)[:, :width]
        rows = self.integers * scales
        rows += self.mean_row
        return rows


def name_of_rows(bits, block_size=None, rank=None):
    """The name of a setting, e.g. `"int4 rank 16"`."""
    name = f"int{bits}"
    if rank is not None:
        name += f" rank {rank}"
    if block_size is not None:
        name += f" blocks of {block_size}"
    return name


def count_blocks(width, block_size):
    """Blocks in a row; the last may be shorter."""
    return -(-width // block_size)


def integer_range(bits):
    """The lowest and highest integer of this number of bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def packed_width(width, bits):
    """Bytes of a packed row."""
    return bytes_per_row(width, 2**bits)


def pack_integers(integers, bits):
    """Packs signed integers into bytes, the first in the lowest bits."""
    fields = np.asarray(integers, "int8").view("uint8") & (2**bits - 1)
    return pack_codes(fields, 2**bits)


def unpack_integers(packed, width, bits):
    """Undoes `pack_integers`."""
    packed = np.asarray(packed)
    if bits == 8:
        return packed.view("int8")
    # The integers of a byte, looked up at once.
    values = fields_of_bytes(bits).view(f"u{8 // bits}").ravel()
    return values.take(packed).view("int8")[:, :width]


@functools.cache
def fields_of_bytes(bits):
    """Integers `(256, 8 // bits)` of each byte."""
    every = np.arange(256, dtype="uint8")[:, None]
    fields = unpack_codes(every, 8 // bits, 2**bits)
    # Moves the sign bit to the top of the byte, and back.
    return (fields << (8 - bits)).view("int8") >> (8 - bits)


def round_rows(
    table, bits, block_size=None, scale_dtype="int8", unit=None, mean_row=None
):
    """Quantizes a table, each block of a row with its best scale.

    Without a mean row, chooses whether to subtract that of the table.
    """
    num_rows, width = table.shape
    block_size = block_size or width
    num_blocks = count_blocks(width, block_size)
    highest = np.iinfo(scale_dtype).max
    zeros = ()
    if mean_row is None:
        mean_row = _choose_mean_row(table, bits, block_size, scale_dtype)
        if np.any(mean_row):
            zeros = _zero_rows(table)
    best = np.empty((num_rows, num_blocks), "float32")
    for rows, blocks in _blocks(table, block_size, mean_row):
        best[rows] = best_scales(blocks, bits).reshape(-1, num_blocks)
    if unit is None:
        unit = scale_unit(best.max(), highest)
    if len(zeros):
        # They stay zero if minus the mean row is a quantized row.
        zero = -mean_row[None]
        zero = round_rows(zero, bits, block_size, scale_dtype, unit, 0)
        mean_row = -zero.decode()[0]
    scales = np.empty(best.shape, scale_dtype)
    integers = np.empty((num_rows, width), "int8")
    for rows, blocks in _blocks(table, block_size, mean_row):
        near = best[rows].reshape(-1)
        chosen, rounded = _search_scales(blocks, near, unit, highest, bits)
        scales[rows] = chosen.reshape(-1, num_blocks)
        rounded = rounded.reshape(len(rounded) // num_blocks, -1)
        integers[rows] = rounded[:, :width]
    if len(zeros):
        scales[zeros], integers[zeros] = zero.scales, zero.integers
    return RoundedTable(integers, scales, unit, block_size, mean_row)


def _choose_mean_row(table, bits, block_size, scale_dtype):
    """The mean of the rows, or zeros if a sample of them loses by it."""
    zeros = np.zeros(table.shape[1], "float32")
    if bits == 8:
        return zeros
    total = sum(x.sum(axis=0, dtype="float64") for _, x in float_chunks(table))
    mean = (total / len(table)).astype("float32")
    some = np.arange(0, len(table), -(-len(table) // _ASKED))
    rows = np.asarray(table[some], "float32")
    shape = bits, block_size, scale_dtype
    plain, rest = (
        _error(rows, round_rows(rows, *shape, mean_row=each))
        for each in (zeros, mean)
    )
    return mean if rest < _MOST_ERROR * plain else zeros


def _zero_rows(table):
    """Places of rows of zeros."""
    zeros = [
        start + np.flatnonzero(~rows.any(axis=1))
        for start, rows in float_chunks(table)
    ]
    return np.concatenate(zeros)


def warn_if_coarse(table, rounded):
    """Warns if scales of short rows are too coarse."""
    coarse = rounded.scales < _COARSE
    if rounded.scales.dtype != "int8" or coarse.mean() <= 0.1:
        return
    # Zero blocks lose nothing.
    for rows, blocks in _blocks(table, rounded.block_size, rounded.mean_row):
        coarse[rows] &= blocks.any(axis=1).reshape(coarse[rows].shape)
    few = coarse.mean()
    if few <= 0.1:
        return
    warnings.warn(
        f"Scales of {few:.0%} of the rows are below {_COARSE} of 127, which "
        "costs precision, as other rows are much longer. Pass "
        "`scale_dtype='int16'`.",
        stacklevel=4,
    )


def scale_unit(largest, highest):
    """The unit that makes the largest scale the highest integer."""
    unit = np.float32(largest) / np.float32(highest)
    # A zero table, or values near the float32 minimum.
    return unit if unit > 0 else np.float32(np.finfo("float32").tiny)


def check_room(table, bits, rounded):
    """Raises if rows need larger scales than those of `rounded` can be."""
    largest = max(
        float(best_scales(blocks, bits).max())
        for _, blocks in _blocks(table, rounded.block_size, rounded.mean_row)
    )
    room = float(np.iinfo(rounded.scales.dtype).max * rounded.unit)
    require(
        largest <= _ROOM * room,
        "`vectors` must not be much larger than the layer's largest rows, "
        f"with scales up to {room:.3g}.",
        scales=largest,
    )


def best_scales(blocks, bits):
    """A float scale for each block."""
    whole = uncut_scales(blocks, bits)
    gains = np.full(len(blocks), -1, "float32")
    best = whole.copy()
    for share in _SHARES[bits]:
        integers = round_blocks(blocks, np.float32(share) * whole, bits)
        products = np.einsum("bi,bi->b", blocks, integers)
        squares = np.einsum("bi,bi->b", integers, integers)
        fit = np.zeros_like(products)
        np.divide(products, squares, out=fit, where=squares > 0)
        # The decrease of the error.
        gain = products * fit
        better = gain > gains
        gains = np.where(better, gain, gains)
        best = np.where(better, np.maximum(fit, 0), best)
    return best


def uncut_scales(blocks, bits):
    """The smallest scales that clip no value."""
    lowest, highest = integer_range(bits)
    return np.maximum(blocks.max(1) / highest, blocks.min(1) / lowest)


def round_blocks(blocks, scales, bits):
    """Blocks as integers for given scales, a float array of their shape."""
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    integers = blocks * inverse[:, None]
    np.rint(integers, out=integers)
    return np.clip(integers, *integer_range(bits), out=integers)


def _search_scales(blocks, near, unit, highest, bits):
    """The best of many integer scales, and the quantized blocks."""
    whole = uncut_scales(blocks, bits) / unit
    near = np.floor(near / unit)
    errors = np.full(len(blocks), np.inf, "float32")
    best = np.zeros(len(blocks), "float32")
    for scales in (
        near,
        near + 1,
        *(np.rint(np.float32(share) * whole) for share in FINE_SHARES[bits]),
    ):
        scales = np.clip(scales, 0, highest)
        steps = scales * unit
        integers = round_blocks(blocks, steps, bits)
        # Without the block's own squares.
        error = np.einsum("bi,bi->b", integers, integers) * steps
        error -= 2 * np.einsum("bi,bi->b", blocks, integers)
        error *= steps
        better = error < errors
        errors[better] = error[better]
        best[better] = scales[better]
    return best, round_blocks(blocks, best * unit, bits)


def _blocks(table, block_size, mean_row):
    """Yields slices of rows and blocks of the rest, `(rows * blocks, size)`."""
    width = table.shape[1]
    size = max(1, _CHUNK_ELEMENTS // width)
    room = -width % block_size
    for start, rows in float_chunks(table, size):
        rows = rows - mean_row
        if room:
            rows = np.pad(rows, ((0, 0), (0, room)))
        part = slice(start, start + len(rows))
        yield part, rows.reshape(-1, block_size)


def round_factors(
    table,
    rank,
    bits,
    block_size=None,
    scale_dtype="int8",
    sample_weight=None,
    seed=None,
):
    """Quantized low-rank rows, their float values, and the projection."""
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


def round_onto(
    table, projection, bits, block_size, scale_dtype, unit, mean_row
):
    """Quantized rows for a projection, and their float values."""
    latents = _latents(table, projection)
    shape = bits, block_size, scale_dtype
    rounded = round_rows(latents, *shape, unit, mean_row)
    for _ in range(_SWEEPS[bits]):
        rounded = _search(table, projection, rounded, bits)
    return rounded, latents


def _latents(table, projection):
    inverse = np.linalg.pinv(projection.astype("float64"))
    return _times(table, inverse.astype("float32"))


def _times(table, matrix):
    return np.concatenate([rows @ matrix for _, rows in float_chunks(table)])


def principal_directions(table, sample_weight=None):
    """Principal axes of a table and their energies, largest first."""
    products = np.zeros((table.shape[1],) * 2)
    for start, rows in float_chunks(table):
        products += _weighted(rows, sample_weight, start).T @ rows
    energies, directions = np.linalg.eigh(products)
    return directions[:, ::-1], np.maximum(energies[::-1], 0)


def rank_of_energy(table, share, sample_weight=None):
    """The smallest rank that keeps this share of the weighted energy."""
    _, energies = principal_directions(table, sample_weight)
    kept = np.cumsum(energies)
    return int(np.searchsorted(kept, share * kept[-1])) + 1


def _weighted(rows, sample_weight, start):
    if sample_weight is None:
        return rows
    return rows * sample_weight[start : start + len(rows), None]


def _error(table, rounded, sample_weight=None):
    """The weighted squared error of a quantized table."""
    error = 0.0
    for start, rows in float_chunks(table):
        rest = rows - rounded.part(start, start + len(rows)).decode()
        error += np.sum(_weighted(rest, sample_weight, start) * rest)
    return error


def _fit_projection(table, rounded, sample_weight):
    """The projection of least weighted squared error for the rows."""
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
    """Rows quantized again for a projection, starting from `rounded`."""
    gram = projection @ projection.T
    integers = np.empty_like(rounded.integers)
    scales = np.empty_like(rounded.scales)
    size = max(1, _SEARCHED_ELEMENTS // len(gram))
    for start, rows in float_chunks(table, size):
        stop = start + len(rows)
        part = rounded.part(start, stop)
        part = _search_part(rows @ projection.T, gram, part, bits)
        integers[start:stop], scales[start:stop] = part
    return dataclasses.replace(rounded, integers=integers, scales=scales)


def _search_part(targets, gram, rounded, bits):
    """Integers and scales of some rows, each optimal given the others."""
    lowest, highest = integer_range(bits)
    size, unit = rounded.block_size, rounded.unit
    # Columns first: the search goes by column.
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
