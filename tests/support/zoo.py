"""Small trained models and their files, made once for a whole run."""

import contextlib
import fcntl
import os
import pathlib

import keras

import keras_compembed as kc


class Zoo:
    """Files in a folder that all workers read; the first that asks makes them.

    Args:
        folder: Path of the folder.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, name, write):
        """The path of a file, which `write(path)` makes if it is not there."""
        path = self.folder / name
        with self._lock(name):
            if not path.exists():
                beside = path.with_name(f"new-{name}")
                write(beside)
                os.replace(beside, path)
        return path

    def model(self, name, build):
        """A model of one's own, loaded from the file of what `build()` gave."""
        path = self.file(f"{name}.keras", lambda path: build().save(path))
        return keras.saving.load_model(path)

    def trained(self, case):
        """The model of a `layer_cases.LayerCase`, trained for an epoch."""
        return self.model(f"trained-{case}", lambda: _train(case))

    def exported(self, case, **kwargs):
        """The path of the LiteRT file of `trained(case)`."""
        options = "-".join(f"{key}={kwargs[key]}" for key in sorted(kwargs))
        return self.file(
            f"trained-{case}-{options}.tflite",
            lambda path: kc.export.export_litert(
                self.trained(case), path, **kwargs
            ),
        )

    @contextlib.contextmanager
    def _lock(self, name):
        with open(self.folder / f"{name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _train(case):
    model, _ = case.build()
    case.train(model)
    return model
