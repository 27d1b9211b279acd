"""Files of arrays, of which a part is never read."""

import os
import zipfile
import zlib

import numpy as np


def read_arrays(path):
    """The arrays of a file."""
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
    """Writes arrays beside a file, and puts them in its place."""
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
