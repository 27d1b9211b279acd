"""Shows how far a file is read."""

import keras

# Below, a file is read before one could look.
_LEAST_BYTES = 1 << 24
_MEGABYTE = 1_000_000


class Progress:
    """A bar of the megabytes of a file that were read."""

    def __init__(self, total, verbose):
        self._bar = None
        self._total = -(-total // _MEGABYTE)
        if verbose and total >= _LEAST_BYTES:
            self._bar = keras.utils.Progbar(self._total, unit_name="MB")

    def update(self, position):
        if self._bar is not None:
            # The bar is closed by `finish`.
            done = min(position // _MEGABYTE, self._total - 1)
            self._bar.update(done, finalize=False)

    def finish(self):
        if self._bar is not None:
            self._bar.update(self._total, finalize=True)
