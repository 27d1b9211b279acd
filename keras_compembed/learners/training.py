"""How learners are trained by gradients: settings, and parts of the run."""

import contextlib
import copy
import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.custom_gradient import custom_gradient
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class Training(Settings):
    """Settings of learners that are trained by gradients.

    What is None is the default of each learner.

    Example:

    >>> learner = kc.learners.KDCodeLearner(
    ...     num_codebooks=8, training=Training(iterations=2000)
    ... )
    >>> learner.training.batch_size
    128

    Args:
        iterations: Optional integer. Steps of `train`, rounded up to whole
            validation intervals. Defaults to `None`.
        batch_size: Integer. Rows per step, over all devices. Defaults to
            `128`.
        learning_rate: Optional positive number or `LearningRateSchedule`, of
            the optimizer that `train` compiles with, unless `compile` was
            called. Defaults to `None`.
        validation_interval: Integer. Steps from one validation to the next.
            Defaults to `1000`.
        validation_rows: Integer. Rows in the fixed validation set, drawn like
            those of a batch. Defaults to `1280`.
    """

    def __init__(
        self,
        iterations=None,
        batch_size=128,
        learning_rate=None,
        validation_interval=1000,
        validation_rows=1280,
    ):
        if iterations is not None:
            iterations = check_positive_int("iterations", iterations)
        self.iterations = iterations
        self.batch_size = check_positive_int("batch_size", batch_size)
        self.learning_rate = check_rate("learning_rate", learning_rate)
        self.validation_interval = check_positive_int(
            "validation_interval", validation_interval
        )
        self.validation_rows = check_positive_int(
            "validation_rows", validation_rows
        )


@keras.saving.register_keras_serializable(package="keras_compembed")
class TemperatureSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """`max(floor, base / (1 + rate * step))`."""

    def __init__(self, base=1.0, rate=1e-3, floor=0.5):
        super().__init__()
        self.base = check_positive_number("base", base)
        self.rate = check_positive_number("rate", rate)
        self.floor = check_positive_number("floor", floor)
        require(
            self.floor <= self.base,
            "`floor` must be at most `base`.",
            base=base,
            floor=floor,
        )

    def __call__(self, step):
        falling = self.base / (1 + self.rate * tf.cast(step, tf.float32))
        return tf.maximum(self.floor, falling)

    def get_config(self):
        return {"base": self.base, "rate": self.rate, "floor": self.floor}


def get_training(identifier, iterations, learning_rate):
    """A `Training` with a learner's defaults; its rate is made of steps."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        identifier is None or isinstance(identifier, Training),
        "`training` must be None or a `keras_compembed.learners.Training`.",
        training=identifier,
    )
    # Not by its config, which schedules of one's own may lack.
    filled = copy.copy(identifier or Training())
    if filled.iterations is None:
        filled.iterations = iterations
    if filled.learning_rate is None:
        filled.learning_rate = learning_rate(filled.iterations)
    return filled


class SquaredDistance(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return tf.reduce_sum(tf.square(y_true - y_pred), axis=-1)


def scale_gradient(value, factor):
    """The value itself; its gradient comes times a factor."""

    @custom_gradient
    def same(value):
        def gradient(upstream):
            return upstream * tf.cast(factor, upstream.dtype)

        return tf.identity(value), gradient

    return same(value)


def finish(step):
    """Runs a step, and anew from its start if Ctrl-C interrupts it."""
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
            weights = [
                (each, keras.ops.convert_to_numpy(each).copy())
                for each in self.model.trainable_variables
            ]
            self.best = logs["val_loss"], weights
        self.validations += 1

    def restore(self):
        weights = self.best[1]
        if weights is not None:
            for variable, value in weights:
                variable.assign(value)
        elif self.validations:
            raise ValueError(
                "The loss became NaN or infinite before the first validation. "
                "Lower `learning_rate`, or scale the table."
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
    """Returns a positive float, a `LearningRateSchedule`, or None."""
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    schedule = keras.optimizers.schedules.LearningRateSchedule
    if value is None or isinstance(value, schedule):
        return value
    return check_positive_number(name, value)
