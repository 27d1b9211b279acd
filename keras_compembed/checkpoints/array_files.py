"""Files of arrays, of which a part is never read."""

import os
import zipfile
import zlib

import numpy as np


def read_arrays(path):
    """The arrays of a file.

    Args:
        path: String.

    Returns:
        Dict of arrays.

    Raises:
        OSError: if there is no such file, or it is damaged.
    """
    # Opened here: NumPy leaves files open that are not whole.
    with open(path, "rb") as opened:
        try:
            with np.load(opened, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (
            *(AttributeError, EOFError, KeyError, RuntimeError, ValueError),
            *(zipfile.BadZipFile, zlib.error),
        ) as error:
            raise OSError(f"it is damaged: {error}") from error


def write_arrays(path, arrays):
    """Writes arrays beside a file, and puts them in its place.

    One process at a time may write a path: what is left of one that was killed
    has a name that the next one writes over.

    Args:
        path: String, of a file that may exist.
        arrays: Dict of arrays.

    Raises:
        OSError: if they cannot be written. What stood at `path` stays.
    """
    beside = f"{path}.unfinished"
    try:
        with open(beside, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        if os.path.exists(beside):
            os.remove(beside)
        raise
