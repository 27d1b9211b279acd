"""Epochs of a learner that is trained by gradients, kept to go on from."""

import keras
import numpy as np

from keras_compembed.checkpoints.checkpoint import Checkpoint
from keras_compembed.checkpoints.descriptions import check_own
from keras_compembed.checkpoints.descriptions import class_of
from keras_compembed.checkpoints.descriptions import without_names
from keras_compembed.checkpoints.variables import arrays_of_variables
from keras_compembed.checkpoints.variables import assign_arrays
from keras_compembed.utils.workers import has_workers


class SavedEpochs(keras.callbacks.Callback):
    """Saves a learner after epochs, and goes on from what was saved."""

    def __init__(self, checkpoint, best):
        super().__init__()
        self._checkpoint = checkpoint
        self._best = best
        self._losses = {}
        self.epochs = 0

    def restore(self, learner):
        """Gives a built and compiled learner what was saved, if anything."""
        saved = self._checkpoint.load()
        if saved is None:
            return
        arrays, state = saved
        assign_arrays(_variables(learner), arrays)
        weights = None
        if "best_0" in arrays:
            number = len(learner.trainable_variables)
            weights = [arrays[f"best_{place}"] for place in range(number)]
        self._best.best = state["best_loss"], weights
        self._best.validations = self.epochs = state["epochs"]
        self._losses = state["losses"]

    def on_epoch_end(self, epoch, logs=None):
        for name, value in logs.items():
            self._losses.setdefault(name, []).append(float(value))
        self.epochs = epoch + 1
        self._checkpoint.save(self._state)

    def on_train_end(self, logs=None):
        self._checkpoint.save(self._state, last=True)

    def complete(self, history):
        """Adds what came before to Keras's history."""
        history.update(self._losses)

    def _state(self):
        loss, weights = self._best.best
        arrays = arrays_of_variables(_variables(self.model))
        arrays |= {
            f"best_{place}": np.asarray(weight)
            for place, weight in enumerate(weights or ())
        }
        return arrays, {
            "best_loss": loss,
            "epochs": self.epochs,
            "losses": self._losses,
        }


def checkpoint_of(learner, is_new, table, sample_weight, callbacks):
    """The `Checkpoint` of a call of `train`."""

    def describe():
        if has_workers(learner.distribute_strategy):
            raise ValueError(
                "`checkpoint_folder` is for work of one process. Received: a "
                f"{type(learner).__name__} that several workers train."
            )
        if callbacks:
            raise TypeError(f"the callback {type(callbacks[0]).__name__}")
        config = learner.get_config()
        del config["verbose"]
        settings = {
            "learner": class_of(learner),
            "config": config,
            "compile": learner.get_compile_config(),
            "replicas": learner.distribute_strategy.num_replicas_in_sync,
        }
        check_own(settings)
        arrays = [table, sample_weight]
        if not is_new:
            arrays += map(keras.ops.convert_to_numpy, _variables(learner))
        return without_names(settings), arrays

    return Checkpoint("learner", describe, learner.seed)


def _variables(learner):
    return [*learner.variables, *learner.optimizer.variables]
