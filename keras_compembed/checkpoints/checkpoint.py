"""A file with what a piece of work needs to go on."""

import hashlib
import json
import os
import time
import warnings
import zipfile
import zlib

import numpy as np

from keras_compembed.checkpoints.checkpoint_folder import current_place
from keras_compembed.version import __version__

_CHUNK_BYTES = 1 << 24
# Seconds of work for each second of saving.
_SHARE = 10
_STATE = "state"


class Checkpoint:
    """What a piece of work saves on its way, in one file.

    Does nothing outside of `checkpoint_folder`.

    Example:

    >>> checkpoint = Checkpoint("sum", lambda: ({"power": 2}, [table]))
    >>> saved = checkpoint.load()

    Args:
        kind: String, the work, which file names begin with.
        describe: Function that returns what the work depends on: something
            that JSON can hold, and a list of arrays, which may be
            memory-mapped, and of None. Work that cannot be described is not
            saved, with a warning.
    """

    def __init__(self, kind, describe):
        place = current_place()
        self._path = None
        if place is None:
            return
        try:
            digest = _digest(kind, *describe())
        except (TypeError, NotImplementedError) as error:
            warnings.warn(
                f"No checkpoint of {kind} is saved, since it has a part that "
                f"cannot be described: {error}",
                stacklevel=2,
            )
            return
        self._path = os.path.join(place.folder, f"{kind}-{digest}.npz")
        self._interval = place.interval
        self._next = time.monotonic() + self._interval

    def load(self):
        """What was saved last.

        Returns:
            Pair of a dict of arrays and the state, or None if there is nothing
            that can be read.
        """
        if self._path is None or not os.path.exists(self._path):
            return None
        try:
            # NumPy leaves a damaged file open.
            with open(self._path, "rb") as opened, np.load(opened) as file:
                arrays = {name: file[name] for name in file.files}
            state = json.loads(str(arrays.pop(_STATE)))
        except (OSError, ValueError, KeyError, EOFError) as error:
            return self._pass_over(error)
        except (zipfile.BadZipFile, zlib.error) as error:
            return self._pass_over(error)
        return arrays, state

    def _pass_over(self, error):
        warnings.warn(
            f"The checkpoint {self._path!r} is damaged and passed over: "
            f"{error}",
            stacklevel=3,
        )

    def save(self, make, last=False):
        """Saves if it is time.

        Args:
            make: Function that returns a dict of arrays and a state, which
                JSON can hold.
            last: Boolean, whether to save in any case. Defaults to `False`.
        """
        if self._path is None:
            return
        start = time.monotonic()
        if not last and start < self._next:
            return
        try:
            self._write(*make())
        except OSError as error:
            warnings.warn(
                f"The checkpoint {self._path!r} cannot be saved, and work goes "
                f"on without: {error}",
                stacklevel=2,
            )
        end = time.monotonic()
        if self._interval:
            self._next = end + max(self._interval, _SHARE * (end - start))

    def _write(self, arrays, state):
        # No other name: a process that is killed leaves it for the next.
        beside = f"{self._path}.unfinished"
        try:
            with open(beside, "wb") as file:
                np.savez(file, **arrays, **{_STATE: json.dumps(state)})
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self._path)
        except OSError:
            if os.path.exists(beside):
                os.remove(beside)
            raise


def _digest(kind, settings, arrays):
    digest = hashlib.blake2b(digest_size=12)
    text = json.dumps([__version__, kind, settings], sort_keys=True)
    digest.update(text.encode())
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.shape} {array.dtype.str}".encode())
        for part in _parts(np.atleast_1d(array)):
            digest.update(part)
    return digest.hexdigest()


def _parts(array):
    """Bytes of rows of a part at a time, of a table that does not fit."""
    if array.dtype == object:
        for item in array.flat:
            text = item if isinstance(item, bytes) else str(item).encode()
            yield len(text).to_bytes(8, "little") + text
        return
    rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        part = np.ascontiguousarray(array[start : start + rows])
        yield part.view("uint8").reshape(-1).data
