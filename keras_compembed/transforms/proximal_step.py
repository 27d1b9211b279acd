"""The proximal step: what makes numbers of a transform exactly 0."""

import keras
import tensorflow as tf

from keras_compembed.optimizers.device_rows import write
from keras_compembed.optimizers.running_optimizer import StepSize
from keras_compembed.utils.validation import require

# Steps from one adjustment of l1 to the next.
_TARGET_INTERVAL = 20


class ProximalStep:
    """Follows each step of an optimizer that moved T."""

    def __init__(self, rows, l1, l1_value, anchors):
        self._rows = rows
        self._l1 = l1
        self._l1_value = l1_value
        self._anchors = anchors

    def __call__(self, optimizer):
        check_optimizer(optimizer)
        # XLA leaves this out; there, `get_transform` and saving find it.
        tf.debugging.check_numerics(
            self._anchors.value,
            f"`{self._anchors.path}` must be finite after a step. Lower the "
            "learning rate, or look for NaN in the inputs and the loss. "
            "Received",
        )
        step = StepSize(optimizer, self._rows.variable, self._l1.by_coordinate)
        l1 = tf.convert_to_tensor(self._l1_value.value)
        self._rows.after_step(step, step.scale * l1)
        if self._l1.target_nonzeros is not None:
            iterations = tf.cast(optimizer.iterations, "int64") + 1
            # Steps that only accumulate gradients do not advance `iterations`.
            due = (step.scale > 0) & (iterations % _TARGET_INTERVAL == 0)
            following = tf.cond(
                due,
                lambda: self._l1.follow_target(l1, self._rows.count()),
                lambda: l1,
            )
            write(self._l1_value, following)


def shrink(rows, threshold, non_negative, free=None):
    """Algorithm 1, line 10, of Liang et al."""
    threshold = tf.cast(threshold, rows.dtype)
    if free is not None:
        threshold = tf.where(free, tf.zeros_like(rows), threshold)
    # Infinite thresholds would make a product of 0 and infinity.
    shrunk = rows - tf.clip_by_value(rows, -threshold, threshold)
    return tf.maximum(shrunk, 0) if non_negative else shrunk


def check_optimizer(optimizer):
    """Raises if the optimizer's steps undo proximal steps."""
    # `SparseRowOptimizer` makes the steps of another.
    optimizer = getattr(optimizer, "inner", optimizer)
    name = type(optimizer).__name__
    kinds = (getattr(keras.optimizers, kind, None) for kind in ("Ftrl", "Muon"))
    require(
        not isinstance(optimizer, tuple(filter(None, kinds))),
        "The optimizer of an `ANTEmbedding` must move weights from where they "
        "are, each by itself, as Adam and SGD do.",
        optimizer=name,
    )
    require(
        not getattr(optimizer, "use_ema", False),
        "`use_ema` must be False with an `ANTEmbedding`: averages of sparse "
        "weights are not sparse.",
        use_ema=True,
    )
