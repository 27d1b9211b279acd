"""Rows of a table, brought to float32 and joined with words."""

import numpy as np

from keras_compembed.vectors.formats.row_collector import RowCollector
from keras_compembed.vectors.subwords import Subwords

_BLOCK_BYTES = 1 << 24


def block_rows(columns, itemsize):
    """How many rows to read at once."""
    return max(1, _BLOCK_BYTES // (columns * itemsize))


def check_shape(source, name, shape):
    """Returns the rows and columns of a table, or raises."""
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"{source} must hold a table of two axes, (rows, columns), neither "
            f"of them empty. Received: {name} of shape {tuple(shape)}."
        )
    return shape


def join(source, words, blocks):
    """Joins a table that comes in blocks with its words."""
    collector = RowCollector(source, "row")
    row = 0
    for block in blocks:
        with np.errstate(over="ignore", invalid="ignore"):
            block = np.asarray(block).astype("float32")
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            wrong = row + int(np.argmin(finite))
            raise ValueError(
                f"{source} must hold finite numbers of float32. Received: NaN, "
                f"infinity or a number beyond in row {wrong + 1}. "
                + (
                    f"Read the rows before it: `limit={wrong}`."
                    if wrong
                    else "Fetch or make the file again."
                )
            )
        collector.add(words[row : row + len(block)], block, row + 1)
        row += len(block)
    return collector.finish()


def read_subwords(source, used, read):
    """`Subwords` of a model."""
    vectors = np.asarray(read(used.kept), "float32")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{source} must hold finite numbers. Received: NaN or infinity in "
            f"bucket {used.kept[np.argmin(finite)]} of groups of letters. "
            "Fetch or make the file again, or read it without `subwords`."
        )
    return Subwords(used.min_n, used.max_n, vectors, used.bucket, used.kept)
