"""A temperature that falls with the steps."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_positive_number


@keras.saving.register_keras_serializable(package="keras_compembed")
class TemperatureSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A temperature that falls with the steps down to a floor.

    `max(floor, base / (1 + rate * step))`

    Example:

    >>> schedule = TemperatureSchedule(base=1.0, rate=0.01, floor=0.5)
    >>> [float(schedule(step)) for step in (0, 25, 1000)]
    [1.0, 0.800000011920929, 0.5]
    >>> learner = kc.learners.KDCodeLearner(temperature=schedule)

    Args:
        base: Positive number, the temperature at first. Defaults to `1.0`.
        rate: Positive number, how fast it falls: to half of `base` in
            `1 / rate` steps. Defaults to `1e-3`.
        floor: Positive number of at most `base`. Defaults to `0.5`.

    Raises:
        ValueError: if a number is not positive, or `floor` is above `base`.

    References:
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464), section 3
    """

    def __init__(self, base=1.0, rate=1e-3, floor=0.5):
        super().__init__()
        self.base = check_positive_number("base", base)
        self.rate = check_positive_number("rate", rate)
        self.floor = check_positive_number("floor", floor)
        if self.floor > self.base:
            raise ValueError(
                "`floor` must be at most `base`. "
                f"Received: floor={floor!r}, base={base!r}."
            )

    def __call__(self, step):
        falling = self.base / (1 + self.rate * tf.cast(step, tf.float32))
        return tf.maximum(self.floor, falling)

    def get_config(self):
        return {"base": self.base, "rate": self.rate, "floor": self.floor}
