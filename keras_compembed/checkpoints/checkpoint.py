"""A file with what a piece of work needs to go on."""

import json
import os
import time
import warnings

from keras_compembed.checkpoints.array_files import read_arrays
from keras_compembed.checkpoints.array_files import write_arrays
from keras_compembed.checkpoints.checkpoint_folder import current_place
from keras_compembed.checkpoints.descriptions import digest

# Seconds of work for each second of saving.
_SHARE = 10
_STATE = "state"


class Checkpoint:
    """What a piece of work saves on its way, in one file."""

    def __init__(self, kind, describe, seed):
        place = current_place()
        self._path = None
        if place is None:
            return
        try:
            name = f"{kind}-{digest([kind, seed], *describe())}"
        except (TypeError, NotImplementedError) as error:
            warnings.warn(
                f"No checkpoint of {kind} is saved: what it depends on cannot "
                f"be told for sure, since there is {error}.",
                stacklevel=2,
            )
            return
        if seed is None:
            place.counts[name] += 1
            name = f"{name}-{place.counts[name]}"
        self._path = os.path.join(place.folder, f"{name}.npz")
        self._interval = place.interval
        self._next = time.monotonic() + self._interval

    def load(self):
        """What was saved last."""
        if self._path is None or not os.path.exists(self._path):
            return None
        try:
            arrays = read_arrays(self._path)
            state = json.loads(str(arrays.pop(_STATE)))
        except (OSError, KeyError, ValueError) as error:
            warnings.warn(
                f"The checkpoint {self._path!r} cannot be read and is passed "
                f"over: {error}",
                stacklevel=2,
            )
            return None
        return arrays, state

    def save(self, make, last=False):
        """Saves if it is time."""
        if self._path is None:
            return
        start = time.monotonic()
        if not last and start < self._next:
            return
        try:
            arrays, state = make()
            write_arrays(self._path, {**arrays, _STATE: json.dumps(state)})
        except OSError as error:
            warnings.warn(
                f"The checkpoint {self._path!r} cannot be saved, and work goes "
                f"on without: {error}",
                stacklevel=2,
            )
        end = time.monotonic()
        if self._interval:
            self._next = end + max(self._interval, _SHARE * (end - start))
