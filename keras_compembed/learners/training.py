"""Settings and parts of training by gradients."""

import copy

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from keras_compembed.utils.saving import Settings
from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class Training(Settings):
    """Training settings of learners that use gradients.

    Example:

    >>> learner = kc.learners.KDCodeLearner(
    ...     num_codebooks=8, training=Training(iterations=2000)
    ... )
    >>> learner.training.batch_size
    128

    Args:
        iterations: Optional integer. Steps of `train`, rounded up to whole
            validation intervals. Defaults to `None`: the learner's default.
        batch_size: Integer. Rows per step, over all devices. Defaults to `128`.
        learning_rate: Optional positive number or `LearningRateSchedule`. Has
            no effect if you call `compile`. Defaults to `None`: the learner's
            default.
        validation_interval: Integer, in steps. Defaults to `1000`.
        validation_rows: Integer. Rows in the fixed validation set, drawn like
            those of a batch. Defaults to `1280`.

    Raises:
        ValueError: If an argument is invalid.
    """

    def __init__(
        self,
        iterations: int | None = None,
        batch_size: int = 128,
        learning_rate: float | LearningRateSchedule | None = None,
        validation_interval: int = 1000,
        validation_rows: int = 1280,
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
    """A `Training` with a learner's defaults; `learning_rate` takes steps."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        identifier is None or isinstance(identifier, Training),
        "`training` must be None or a `keras_compembed.learners.Training`.",
        training=identifier,
    )
    # Not by its config, which custom schedules may lack.
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
    """The value itself, with its gradient times a factor."""

    @custom_gradient
    def same(value):
        def gradient(upstream):
            return upstream * tf.cast(factor, upstream.dtype)

        return tf.identity(value), gradient

    return same(value)


def finish(step):
    """Runs a step, and restarts it if Ctrl-C interrupts it."""
    try:
        return step()
    except KeyboardInterrupt:
        print("\nInterrupted: finishing. Press Ctrl-C again to stop now.")
        return step()


def check_rate(name, value):
    """Returns a positive float, a `LearningRateSchedule`, or None."""
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    schedule = keras.optimizers.schedules.LearningRateSchedule
    if value is None or isinstance(value, schedule):
        return value
    return check_positive_number(name, value)
