"""Rows rounded to few bits, with the scales that lose least."""

import numpy as np

from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.utils.validation import float_chunks

# Numbers at a time, as many as caches hold.
_CHUNK_ELEMENTS = 1 << 16
# Scales to begin from, as shares of the one that cuts no number off. The
# fewer the integers, the more the largest numbers are worth cutting off.
SHARES = {
    8: (1.0, 0.9, 0.8),
    4: tuple(np.linspace(0.45, 1.0, 8)),
    2: tuple(np.linspace(0.2, 1.0, 12)),
}


def round_rows(table, bits, block_size=None, scale_dtype="int16"):
    """Rounds a table to integers, each block of a row with its best scale.

    Least squared error by search: integers of several scales, of each of
    which least squares gives a better one. Scales are integers themselves;
    rows are rounded for these.

    Args:
        table: Array `(rows, width)`.
        bits: Integer, 8, 4 or 2.
        block_size: Optional integer. Defaults to `None`: the whole row.
        scale_dtype: `"int8"` or `"int16"`.

    Returns:
        A `RoundedTable`.
    """
    num_rows, width = table.shape
    block_size = block_size or width
    num_blocks = count_blocks(width, block_size)
    best = np.empty((num_rows, num_blocks), "float32")
    for rows, blocks in _blocks(table, block_size):
        best[rows] = best_scales(blocks, bits).reshape(-1, num_blocks)
    highest = np.iinfo(scale_dtype).max
    unit = scale_unit(best.max(), highest)
    scales = np.empty(best.shape, scale_dtype)
    integers = np.empty((num_rows, width), "int8")
    for rows, blocks in _blocks(table, block_size):
        near = best[rows].reshape(-1) / unit
        chosen, rounded = _nearest_integers(blocks, near, unit, highest, bits)
        scales[rows] = chosen.reshape(-1, num_blocks)
        rounded = rounded.reshape(len(rounded) // num_blocks, -1)
        integers[rows] = rounded[:, :width]
    return RoundedTable(integers, scales, unit, block_size)


def scale_unit(largest, highest):
    """The unit of which the largest scale is the highest integer."""
    unit = np.float32(largest) / np.float32(highest)
    # A table of zeros, or of numbers that float32 hardly holds.
    return unit if unit > 0 else np.float32(np.finfo("float32").tiny)


def best_scales(blocks, bits):
    """A float scale for each block.

    Args:
        blocks: float32 array `(blocks, size)`.
        bits: Integer.

    Returns:
        float32 array `(blocks,)`, 0 for blocks of zeros.
    """
    whole = uncut_scales(blocks, bits)
    gains = np.full(len(blocks), -1, "float32")
    best = whole.copy()
    for share in SHARES[bits]:
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


def _nearest_integers(blocks, near, unit, highest, bits):
    """Integer scales next to given ones, and blocks rounded for them."""
    errors = np.full(len(blocks), np.inf, "float32")
    scales = np.zeros(len(blocks), "float32")
    best = np.zeros_like(blocks)
    below = np.floor(near)
    for candidate in (below, below + 1):
        candidate = np.clip(candidate, 0, highest).astype("float32")
        steps = candidate * unit
        integers = round_blocks(blocks, steps, bits)
        rest = blocks - integers * steps[:, None]
        error = np.einsum("bi,bi->b", rest, rest)
        better = error < errors
        errors[better] = error[better]
        scales[better] = candidate[better]
        best[better] = integers[better]
    return scales, best


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
