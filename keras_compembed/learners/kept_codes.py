"""Finished codes of tables, kept in a folder."""

import hashlib
import json
import os
import warnings

import numpy as np

from keras_compembed.utils.files import replacing
from keras_compembed.version import __version__

_CHUNK_BYTES = 1 << 24


class KeptCodes:
    """A file named by a hash of what codes depend on."""

    def __init__(self, folder, settings, table, sample_weight):
        self._path = None
        if folder is None:
            return
        os.makedirs(folder, exist_ok=True)
        found = hashlib.blake2b(digest_size=16)
        found.update(json.dumps([__version__, settings]).encode())
        for array in (table, sample_weight):
            if array is not None:
                _add_rows(found, array)
        self._path = os.path.join(folder, f"codes-{found.hexdigest()}.npz")

    def load(self):
        """Dict of codes, codebooks and history, or None."""
        if self._path is None or not os.path.exists(self._path):
            return None
        try:
            # Opened here: NumPy leaves files open that are damaged.
            with open(self._path, "rb") as opened, np.load(opened) as file:
                history = {x: file[x].tolist() for x in ("loss", "seconds")}
                found = {x: file[x] for x in ("codes", "codebooks")}
                return {**found, "history": history}
        # Of damaged files.
        except Exception as error:
            self._warn("read", error)
            return None

    def save(self, codes, codebooks, history):
        """Keeps what was learned, unless there is no folder for it."""
        if self._path is None:
            return
        try:
            with replacing(self._path, overwrite=True) as beside:
                np.savez(beside, codes=codes, codebooks=codebooks, **history)
        except OSError as error:
            self._warn("written", error)

    def _warn(self, verb, error):
        line = f"The codes in {self._path!r} cannot be {verb}: {error}"
        warnings.warn(line, stacklevel=4)


def _add_rows(found, array):
    found.update(f"{array.shape} {array.dtype.str}".encode())
    rows = max(1, _CHUNK_BYTES // max(1, np.asarray(array[:1]).nbytes))
    for start in range(0, len(array), rows):
        part = np.ascontiguousarray(array[start : start + rows])
        found.update(part.view("uint8").reshape(-1).data)
