"""What several workers learned, kept for when one of them dies."""

import os
import pathlib
import re

import keras

from keras_compembed.utils.workers import is_chief
from keras_compembed.utils.workers import on_all_workers

_NAME = re.compile(r"epoch-(\d+)\.weights\.h5")
_UNFINISHED = "unfinished-"
# A second one, should the last turn out to be damaged.
_KEPT = 2


class WorkerBackup(keras.callbacks.Callback):
    """Backs up training at the end of each epoch, and goes on from there.

    What `keras.callbacks.BackupAndRestore` is to one worker, under
    `tf.distribute.MultiWorkerMirroredStrategy`: one worker writes, and all go
    on from the same epoch. Where a worker dies, TensorFlow stops the others
    with an error; start all of them again, with the same program and folder,
    as `examples/multi_worker/launch.py` does. Files are written beside and
    then renamed, so that what is half-written is never read; one that is
    damaged is passed over for the one before it.

    Epochs start anew: shuffle data by a seed that depends on the epoch, or not
    at all, to have the result of an undisturbed run.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> backup = kc.distribution.WorkerBackup("backup")
    >>> x, y = np.ones((8, 2)), np.ones((8, 1))
    >>> history = model.fit(x, y, epochs=3, callbacks=[backup], verbose=0)

    Args:
        backup_dir: String or path-like, a folder of its own that all workers
            read, and that the first writes.
        delete_checkpoint: Boolean. Whether to delete backups when training is
            over, and the folder if nothing else is in it. Defaults to `True`.

    Raises:
        ValueError: if `backup_dir` is empty; in `fit`, if the model is not
            built.
        OSError: in `fit`, if a worker does not find what another wrote.
    """

    def __init__(self, backup_dir, delete_checkpoint=True):
        super().__init__()
        if not os.fspath(backup_dir):
            raise ValueError(
                "`backup_dir` must name a folder. "
                f"Received: backup_dir={backup_dir!r}."
            )
        self.backup_dir = pathlib.Path(backup_dir)
        self.delete_checkpoint = delete_checkpoint

    def on_train_begin(self, logs=None):
        if not self.model.built:
            raise ValueError(
                "The model must be built before `fit` with a `WorkerBackup`, "
                "e.g. by `keras.Input`. Received: the model "
                f"{self.model.name!r}, which is not."
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        strategy = self.model.distribute_strategy
        # The first worker says where to go on.
        mine = self._restore_newest() if is_chief(strategy) else -1
        epoch = max(on_all_workers(strategy, mine))
        found = epoch == 0 or mine >= 0 or self._path(epoch).exists()
        if not all(on_all_workers(strategy, int(found))):
            raise OSError(
                "`backup_dir` must be a folder that all workers read. "
                f"Received: backup_dir={str(self.backup_dir)!r}, where only "
                f"some workers find {self._path(epoch).name}."
            )
        if epoch and mine < 0:
            self.model.load_weights(self._path(epoch))
        # Same as `BackupAndRestore`: `fit` goes on from there.
        self.model._initial_epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        # Of this `fit` alone: another one would leave out epochs.
        self.model._initial_epoch = None

    def on_epoch_end(self, epoch, logs=None):
        if not is_chief(self.model.distribute_strategy):
            return
        self.backup_dir.mkdir(parents=True, exist_ok=True)
        path = self._path(epoch + 1)
        beside = path.with_name(_UNFINISHED + path.name)
        self.model.save_weights(beside, overwrite=True)
        os.replace(beside, path)
        for old in self._epochs()[:-_KEPT]:
            self._path(old).unlink()

    def on_train_end(self, logs=None):
        self.model._initial_epoch = None
        if self.delete_checkpoint and is_chief(self.model.distribute_strategy):
            self._delete()

    def _delete(self):
        for name in self._names():
            if _NAME.fullmatch(name.removeprefix(_UNFINISHED)):
                (self.backup_dir / name).unlink()
        # What else is there is not the callback's.
        if self.backup_dir.exists() and not self._names():
            self.backup_dir.rmdir()

    def _path(self, epoch):
        return self.backup_dir / f"epoch-{epoch}.weights.h5"

    def _names(self):
        return os.listdir(self.backup_dir) if self.backup_dir.exists() else []

    def _epochs(self):
        """Epochs that there are files of, in order."""
        names = map(_NAME.fullmatch, self._names())
        return sorted(int(name[1]) for name in names if name)

    def _restore_newest(self):
        """Loads the newest file that is whole; its epoch, or 0."""
        for epoch in reversed(self._epochs()):
            try:
                self.model.load_weights(self._path(epoch))
            except OSError:
                continue
            return epoch
        return 0
