"""Opens a table that stays in its file."""

import os

import numpy as np

from keras_compembed.vectors.formats import arrays
from keras_compembed.vectors.vectors_file import naming


def open_table(path, tensor=None):
    """Maps a table in a file into memory, without reading it.

    Learners, and `from_table` of layers, read such a table a part at a time,
    so it may be larger than memory. They take a list of tables as well, whose
    rows follow each other.

    Example:

    >>> for place in range(3):
    ...     np.save(f"part-{place}.npy", np.full((100, 8), place, "float32"))
    >>> table = [open_table(f"part-{place}.npy") for place in range(3)]
    >>> learner = kc.learners.AdditiveQuantizer(2, 4, verbose=0)
    >>> learner.train(table).codes.shape
    (300, 2)

    Args:
        path: String or path-like, an uncompressed `.npy` or `.safetensors`
            file.
        tensor: Optional string, the name of the table in a safetensors file
            that holds several. Defaults to the only one of two axes.

    Returns:
        A `numpy.memmap`.
    """
    path = os.fspath(path)
    with naming(path, "a table"):
        with open(path, "rb") as file:
            is_npy = file.read(6) == b"\x93NUMPY"
        if is_npy:
            table = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            name = arrays.choose_tensor(arrays.tensor_shapes(path), tensor)
            shape, dtype, start = arrays.find_tensor(path, name)
            table = np.memmap(path, dtype, "r", start, shape)
        arrays.check_table(table.shape, table.dtype)
    return table
