"""Fits of tables, kept between trials."""

import contextlib
import inspect
import os
import signal
import threading

import numpy as np

from keras_compembed.checkpoints.array_files import read_arrays
from keras_compembed.checkpoints.descriptions import digest
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.utils.files import replacing


class KeptFits:
    """Weights of layers that were fitted to tables."""

    def __init__(self, folder=None):
        self.folder = folder
        self._weights = {}

    def of(self, method):
        """The `Method` that fits as another does, each table once."""
        return _KeptMethod(method, self)

    def get(self, key):
        """List of arrays, or None."""
        if key not in self._weights and self.folder is not None:
            with contextlib.suppress(OSError):
                arrays = read_arrays(self._path(key))
                names = [f"arr_{place}" for place in range(len(arrays))]
                self._weights[key] = [arrays[name] for name in names]
        return self._weights.get(key)

    def put(self, key, weights):
        """Keeps a list of arrays."""
        self._weights[key] = weights
        if self.folder is not None:
            os.makedirs(self.folder, exist_ok=True)
            # Several processes may search at once.
            with replacing(self._path(key), overwrite=True) as temporary:
                np.savez(temporary, *weights)

    def _path(self, key):
        return os.path.join(self.folder, f"{key}.npz")


class _KeptMethod(Method):
    """Another method, whose fits are read from those that are kept."""

    def __init__(self, method, kept):
        self._method = method
        self._kept = kept
        self.rows = method.rows
        self.reduce = method.reduce
        self.reversible = method.reversible

    @property
    def name(self):
        return self._method.name

    def start(self, seed=None, verbose=0):
        fit = self._method.start(seed, verbose)

        def from_table(table, sample_weight=None, **kwargs):
            key = self._key(seed, table, sample_weight, kwargs)
            weights = self._kept.get(key)
            if weights is None:
                with _interrupted_for_good():
                    layer = fit.from_table(table, sample_weight, **kwargs)
                self._kept.put(key, layer.get_weights())
                return layer
            layer = self.new_layer(self.rows, fit, *table.shape, **kwargs)
            layer.set_weights(weights)
            return layer

        return Fit(fit.options, from_table)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        return self._method.litert_bytes(input_dim, output_dim, quantize)

    def reason_against(self, input_dim, output_dim):
        return self._method.reason_against(input_dim, output_dim)

    def new_layer(self, cls, fit, input_dim, output_dim, **kwargs):
        return self._method.new_layer(cls, fit, input_dim, output_dim, **kwargs)

    def _key(self, seed, table, sample_weight, kwargs):
        settings = [
            type(self._method).__qualname__,
            self.name,
            {x: _describe(y) for x, y in sorted(vars(self._method).items())},
            seed,
            repr(sorted(kwargs.items())),
        ]
        return digest("fit", settings, [table, sample_weight])


def _describe(setting):
    """Text that is the same in each process, where there is one."""
    if inspect.isroutine(setting) or inspect.isclass(setting):
        return f"{setting.__module__}.{setting.__qualname__}"
    if hasattr(setting, "get_config"):
        config = setting.get_config()
        # Those that nobody chose are counted.
        config.pop("name", None)
        return f"{type(setting).__qualname__} {sorted(config.items())}"
    return repr(setting)


@contextlib.contextmanager
def _interrupted_for_good():
    """Ctrl-C ends more than a learner, which keeps the best codes so far."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not (
        callable(before)
    ):
        yield
        return
    came = []

    def note(number, frame):
        came.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
