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


class KeepBest(keras.callbacks.Callback):
    """Remembers the weights of the lowest validation loss."""

    def __init__(self):
        super().__init__()
        self.loss = np.inf
        self.weights = None
        self.validations = 0

    def on_epoch_end(self, epoch, logs=None):
        self.validations += 1
        if logs["val_loss"] < self.loss:
            self.loss = logs["val_loss"]
            self.weights = self._values(self.model.trainable_variables)

    def _values(self, variables):
        return [keras.ops.convert_to_numpy(v).copy() for v in variables]

    def restore(self):
        if self.weights is not None:
            for variable, value in zip(
                self.model.trainable_variables, self.weights, strict=True
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
