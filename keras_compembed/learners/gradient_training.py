"""Parts of the training of codes by gradients."""

import contextlib
import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.validation import check_positive_number


class SquaredDistance(keras.losses.Loss):
    """Squared distance of rows, summed over columns."""

    def call(self, y_true, y_pred):
        return tf.reduce_sum(tf.square(y_true - y_pred), axis=-1)


def scale_gradient(value, factor):
    """The value itself; its gradient comes times a factor."""

    @tf.custom_gradient
    def same(value):
        return tf.identity(value), lambda upstream: upstream * factor

    return same(value)


def finish(step):
    """Runs a step, and anew from its start if Ctrl-C interrupts it.

    A second Ctrl-C goes through.
    """
    try:
        return step()
    except KeyboardInterrupt:
        print("\nInterrupted: finishing; Ctrl-C once more gives up.")
        return step()


class KeepBest(keras.callbacks.Callback):
    """Remembers the weights of the lowest validation loss."""

    def __init__(self):
        super().__init__()
        # One tuple: Ctrl-C comes before or after both are there.
        self.best = np.inf, None
        self.validations = 0

    def on_epoch_end(self, epoch, logs=None):
        if logs["val_loss"] < self.best[0]:
            self.best = (
                logs["val_loss"],
                [
                    keras.ops.convert_to_numpy(variable).copy()
                    for variable in self.model.trainable_variables
                ],
            )
        self.validations += 1

    def restore(self):
        weights = self.best[1]
        if weights is not None:
            for variable, value in zip(
                self.model.trainable_variables, weights, strict=True
            ):
                variable.assign(value)
        elif self.validations:
            raise ValueError(
                "The loss became NaN or infinite before the first validation. "
                "Lower `learning_rate`, or scale the table. "
                f"Received: learning_rate={self.model.learning_rate}."
            )


class AsMatrix:
    """Initializes an array of any rank as a matrix of its last axis."""

    def __init__(self, initializer):
        self.initializer = initializer

    def __call__(self, shape, dtype=None):
        matrix = int(np.prod(shape[:-1])), shape[-1]
        return tf.reshape(self.initializer(matrix, dtype=dtype), shape)


@contextlib.contextmanager
def seeded_defaults(seed):
    """Seeds of initializers that are named without one follow from `seed`."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def check_callbacks(callbacks):
    """Returns a list of Keras callbacks, or raises."""
    found = keras.tree.flatten(callbacks)
    for callback in found:
        if not isinstance(callback, keras.callbacks.Callback | None):
            raise ValueError(
                "`callbacks` must be a list of Keras callbacks. "
                f"Received: callbacks={callbacks!r}."
            )
    return [callback for callback in found if callback is not None]


def drawn_places(num_rows, weight, batch_size, seed):
    """Yields batches of row numbers drawn in proportion to `weight`."""
    rng = np.random.default_rng(seed)
    if weight is not None:
        cumulative = np.cumsum(weight, dtype="float64")
        cumulative /= cumulative[-1]
    while True:
        if weight is None:
            yield rng.integers(num_rows, size=batch_size)
        else:
            draws = rng.random(batch_size)
            yield np.searchsorted(cumulative, draws, side="right")


def check_rate(name, value):
    """Returns a positive number as a float, or a `LearningRateSchedule`."""
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        return value
    return check_positive_number(name, value)


def serialize_rate(value):
    """What `check_rate` takes back, for `get_config`."""
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        return keras.saving.serialize_keras_object(value)
    return value
