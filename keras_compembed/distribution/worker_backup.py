"""Backups of training on several workers."""

import contextlib
import hashlib
import os
import pathlib
import re
import warnings

import keras

from keras_compembed.utils.validation import require
from keras_compembed.utils.workers import is_chief
from keras_compembed.utils.workers import on_all_workers

# The epoch, and a digest of the file.
_NAME = re.compile(r"epoch-(\d+)-([0-9a-f]{32})\.weights\.h5")
_UNFINISHED = "unfinished.weights.h5"
# Keep a second backup in case the newest one is damaged.
_KEPT = 2


class WorkerBackup(keras.callbacks.Callback):
    """Backs up training after each epoch, and resumes it on all workers.

    It is `keras.callbacks.BackupAndRestore` for several workers with
    `tf.distribute.MultiWorkerMirroredStrategy`: one worker writes, and all
    resume from the same epoch. If a worker dies, TensorFlow stops the others.
    Start all of them again with the same program and folder, as
    `examples/multi_worker/launch.py` does.

    Backups are deleted after training. If a worker may die while you save the
    model, keep them with `delete_checkpoint=False`. For the same result as an
    uninterrupted run, do not shuffle data, or shuffle with a seed that depends
    on the epoch.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> backup = kc.distribution.WorkerBackup("backup")
    >>> x, y = np.ones((8, 2)), np.ones((8, 1))
    >>> history = model.fit(x, y, epochs=3, callbacks=[backup], verbose=0)

    Args:
        backup_dir: String or path-like, a folder for backups only, readable by
            all workers. The first worker writes it.
        delete_checkpoint: Boolean. Whether to delete backups after training.
            Defaults to `True`.

    Raises:
        OSError: In `fit`, if some workers cannot read the backup.
    """

    def __init__(
        self, backup_dir: str | os.PathLike, delete_checkpoint: bool = True
    ):
        super().__init__()
        require(
            os.fspath(backup_dir),
            "`backup_dir` must be the path of a folder.",
            backup_dir=backup_dir,
        )
        self.backup_dir = pathlib.Path(backup_dir)
        self.delete_checkpoint = delete_checkpoint

    def on_train_begin(self, logs=None):
        require(
            self.model.built,
            "The model must be built before `fit` with a `WorkerBackup`.",
            model=self.model.name,
        )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        strategy = self.model.distribute_strategy
        # The first worker chooses the epoch to resume from.
        newest, path = self._whole() if is_chief(strategy) else (0, None)
        epoch = max(on_all_workers(strategy, newest))
        if epoch and path is None:
            _, path = self._whole(epoch)
        found = epoch == 0 or path is not None
        if not all(on_all_workers(strategy, int(found))):
            raise OSError(
                "`backup_dir` must be a folder that all workers can read. "
                f"Received: backup_dir={str(self.backup_dir)!r}, with the "
                f"backup of epoch {epoch} on some workers only."
            )
        if epoch:
            self._load(path)
            if epoch >= self.params["epochs"]:
                warnings.warn(
                    "`fit` has nothing to train: the backup in "
                    f"{self.backup_dir} is already at epoch {epoch}. To train "
                    "from scratch, delete the folder.",
                    stacklevel=2,
                )
        # Same as `BackupAndRestore`: `fit` resumes from this epoch.
        self.model._initial_epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        # Only for this `fit`: another one would skip epochs.
        self.model._initial_epoch = None

    def on_epoch_end(self, epoch, logs=None):
        if not is_chief(self.model.distribute_strategy):
            return
        self.backup_dir.mkdir(parents=True, exist_ok=True)
        beside = self.backup_dir / _UNFINISHED
        self.model.save_weights(beside, overwrite=True)
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        name = f"epoch-{epoch + 1}-{_digest(beside)}.weights.h5"
        path = self.backup_dir / name
        os.replace(beside, path)
        # Other files of this epoch, and later ones, are damaged.
        older = [old for number, old in self._files() if number <= epoch]
        for _, old in self._files():
            if old != path and old not in older[1 - _KEPT :]:
                old.unlink()

    def on_train_end(self, logs=None):
        self.model._initial_epoch = None
        if not self.delete_checkpoint:
            return
        strategy = self.model.distribute_strategy
        # If a worker died before this point, this raises an error in others.
        on_all_workers(strategy, 1)
        if not is_chief(strategy):
            return
        for _, path in self._files():
            path.unlink()
        (self.backup_dir / _UNFINISHED).unlink(missing_ok=True)
        # Keep files of others.
        if self.backup_dir.exists() and not os.listdir(self.backup_dir):
            self.backup_dir.rmdir()

    def _load(self, path):
        try:
            self.model.load_weights(path)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                "`backup_dir` must be of this model and optimizer. To train "
                "from scratch, delete the folder. "
                f"Received: backup_dir={str(self.backup_dir)!r}: {error}"
            ) from error

    def _files(self):
        """Sorted pairs of an epoch and the path of its file."""
        if not self.backup_dir.exists():
            return []
        names = map(_NAME.fullmatch, os.listdir(self.backup_dir))
        return sorted(
            (int(name[1]), self.backup_dir / name[0]) for name in names if name
        )

    def _whole(self, epoch=None):
        """The newest undamaged file, or that of an epoch."""
        for number, path in reversed(self._files()):
            if epoch in (None, number):
                with contextlib.suppress(OSError):
                    if _digest(path) == _NAME.fullmatch(path.name)[2]:
                        return number, path
        return 0, None


def _digest(path):
    found = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
