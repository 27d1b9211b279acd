"""How much of a variable is zero, step by step."""

import dataclasses

import tensorflow as tf

from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sparsity


@dataclasses.dataclass(frozen=True)
class PolynomialSparsity:
    """Sparsity that rises fast at first and slowly in the end.

    From `begin_step` to `end_step`, every `frequency` steps and in the last,

    `final + (initial - final) * (1 - (step - begin) / (end - begin)) ** power`

    of the numbers are 0. Between these steps, and after the last, the same
    numbers stay 0. A table that is pruned already stays so with an
    `initial_sparsity` as high as `final_sparsity`.

    Example:

    >>> schedule = PolynomialSparsity(0.9, end_step=1000)
    >>> [round(float(schedule(step)), 3) for step in (0, 500, 1000)]
    [0.0, 0.787, 0.9]

    Args:
        final_sparsity: Number from 0 to below 1, the share of zeros in the
            end.
        end_step: Integer above `begin_step`, steps of the optimizer after
            which it is reached.
        begin_step: Integer. Steps of the optimizer before the first zeros.
            Defaults to `0`.
        frequency: Integer. Steps from one choice of zeros to the next.
            Defaults to `100`.
        initial_sparsity: Number from 0 to `final_sparsity`, the share of
            zeros at first. Defaults to `0.0`.
        power: Positive number. Defaults to `3`.

    References:
        - [Zhu & Gupta, 2017](https://arxiv.org/abs/1710.01878), section 3
    """

    final_sparsity: float
    end_step: int
    begin_step: int = 0
    frequency: int = 100
    initial_sparsity: float = 0.0
    power: float = 3

    def __post_init__(self):
        check_sparsity("final_sparsity", self.final_sparsity)
        check_sparsity("initial_sparsity", self.initial_sparsity)
        if self.initial_sparsity > self.final_sparsity:
            raise ValueError(
                "`initial_sparsity` must be at most `final_sparsity`. Received:"
                f" initial_sparsity={self.initial_sparsity!r}, "
                f"final_sparsity={self.final_sparsity!r}."
            )
        check_positive_int("begin_step", self.begin_step, minimum=0)
        check_positive_int("end_step", self.end_step, self.begin_step + 1)
        check_positive_int("frequency", self.frequency)
        check_positive_number("power", self.power)

    def __call__(self, step):
        """The share of zeros after so many steps, a float32 scalar tensor."""
        step = tf.cast(step - self.begin_step, tf.float32)
        # The order of operations of tensorflow-model-optimization, so that
        # numbers near a half are rounded alike.
        part = step / (self.end_step - self.begin_step)
        part = tf.minimum(1.0, tf.maximum(0.0, part))
        gap = self.initial_sparsity - self.final_sparsity
        return gap * (1 - part) ** self.power + self.final_sparsity

    def is_due(self, step):
        """Whether zeros are chosen after so many steps, a boolean tensor."""
        step = tf.cast(step, tf.int64)
        since = step - self.begin_step
        inside = (since >= 0) & (step <= self.end_step)
        return inside & (
            tf.equal(since % self.frequency, 0) | tf.equal(step, self.end_step)
        )

    def last_due(self, step):
        """The last step up to `step` in which zeros were chosen, or None."""
        if step < self.begin_step:
            return None
        if step >= self.end_step:
            return self.end_step
        return step - (step - self.begin_step) % self.frequency
