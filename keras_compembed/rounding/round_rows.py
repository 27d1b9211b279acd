"""Rows rounded to few bits, with the scales that lose least."""

import warnings

import numpy as np

from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

# Numbers at a time, as many as caches hold.
_CHUNK_ELEMENTS = 1 << 16
# Below this, an integer scale is more than a tenth off.
_COARSE = 5
# Scales so much larger than there is room for cut numbers off that hardly
# matter.
_ROOM = 1.1
# Scales to begin from, as shares of the one that cuts no number off. The
# fewer the integers, the more the largest numbers are worth cutting off.
_SHARES = {
    8: (1.0, 0.9),
    4: tuple(np.linspace(0.5, 1.0, 6)),
    2: tuple(np.linspace(0.2, 1.0, 8)),
}
# Of short blocks, one scale may suit far better than those next to it, even
# one larger than any number asks for.
FINE_SHARES = {
    8: tuple(np.linspace(0.9, 1.3, 24)),
    4: tuple(np.linspace(0.5, 1.3, 32)),
    2: tuple(np.linspace(0.2, 1.1, 16)),
}


def round_rows(table, bits, block_size=None, scale_dtype="int8", unit=None):
    """Rounds a table to integers, each block of a row with its best scale."""
    num_rows, width = table.shape
    block_size = block_size or width
    num_blocks = count_blocks(width, block_size)
    best = np.empty((num_rows, num_blocks), "float32")
    for rows, blocks in _blocks(table, block_size):
        best[rows] = best_scales(blocks, bits).reshape(-1, num_blocks)
    highest = np.iinfo(scale_dtype).max
    if unit is None:
        unit = scale_unit(best.max(), highest)
    scales = np.empty(best.shape, scale_dtype)
    integers = np.empty((num_rows, width), "int8")
    for rows, blocks in _blocks(table, block_size):
        near = best[rows].reshape(-1)
        chosen, rounded = _search_scales(blocks, near, unit, highest, bits)
        scales[rows] = chosen.reshape(-1, num_blocks)
        rounded = rounded.reshape(len(rounded) // num_blocks, -1)
        integers[rows] = rounded[:, :width]
    return RoundedTable(integers, scales, unit, block_size)


def warn_if_coarse(table, rounded):
    """Warns where rows are so short that their scales cost precision."""
    coarse = rounded.scales < _COARSE
    if rounded.scales.dtype != "int8" or coarse.mean() <= 0.1:
        return
    # Blocks of zeros lose nothing.
    for rows, blocks in _blocks(table, rounded.block_size):
        coarse[rows] &= blocks.any(axis=1).reshape(coarse[rows].shape)
    few = coarse.mean()
    if few <= 0.1:
        return
    warnings.warn(
        f"Scales of {few:.0%} of the rows are below {_COARSE} of 127, as other "
        "rows are far longer, and so coarse that they cost precision. Pass "
        "`scale_dtype='int16'`.",
        stacklevel=4,
    )


def scale_unit(largest, highest):
    """The unit of which the largest scale is the highest integer."""
    unit = np.float32(largest) / np.float32(highest)
    # A table of zeros, or of numbers that float32 hardly holds.
    return unit if unit > 0 else np.float32(np.finfo("float32").tiny)


def check_room(table, bits, block_size, scale_dtype, unit):
    """Raises if rows need larger scales than there is room for."""
    largest = max(
        float(best_scales(blocks, bits).max())
        for _, blocks in _blocks(table, block_size or table.shape[1])
    )
    room = float(np.iinfo(scale_dtype).max * unit)
    require(
        largest <= _ROOM * room,
        "`vectors` must be about as large as the largest rows of the layer at "
        f"most, whose scales reach {room:.3g}.",
        scales=largest,
    )


def best_scales(blocks, bits):
    """A float scale for each block."""
    whole = uncut_scales(blocks, bits)
    gains = np.full(len(blocks), -1, "float32")
    best = whole.copy()
    for share in _SHARES[bits]:
        integers = round_blocks(blocks, np.float32(share) * whole, bits)
        fit, gain = _least_squares(blocks, integers)
        better = gain > gains
        gains = np.where(better, gain, gains)
        best = np.where(better, fit, best)
    return best


def uncut_scales(blocks, bits):
    """The smallest scales by which no number is beyond the integers."""
    lowest, highest = integer_range(bits)
    return np.maximum(blocks.max(1) / highest, blocks.min(1) / lowest)


def round_blocks(blocks, scales, bits):
    """Blocks as integers of given scales, a float array of their shape."""
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    integers = blocks * inverse[:, None]
    np.rint(integers, out=integers)
    return np.clip(integers, *integer_range(bits), out=integers)


def _least_squares(blocks, integers):
    """The best scales of integers, and by how much they lower the error."""
    products = np.einsum("bi,bi->b", blocks, integers)
    squares = np.einsum("bi,bi->b", integers, integers)
    scales = np.divide(
        products, squares, out=np.zeros_like(products), where=squares > 0
    )
    return np.maximum(scales, 0), products * scales


def _search_scales(blocks, near, unit, highest, bits):
    """The best of many integer scales, and blocks rounded for them."""
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
        # Less the squares of the block itself.
        error = np.einsum("bi,bi->b", integers, integers) * steps
        error -= 2 * np.einsum("bi,bi->b", blocks, integers)
        error *= steps
        better = error < errors
        errors[better] = error[better]
        best[better] = scales[better]
    return best, round_blocks(blocks, best * unit, bits)


def _blocks(table, block_size):
    """Yields slices of rows and their blocks, `(rows * blocks, size)`."""
    width = table.shape[1]
    size = max(1, _CHUNK_ELEMENTS // width)
    room = -width % block_size
    for start, rows in float_chunks(table, size):
        if room:
            rows = np.pad(rows, ((0, 0), (0, room)))
        part = slice(start, start + len(rows))
        yield part, rows.reshape(-1, block_size)
