"""The optimizer at work, and how far it moves each coordinate."""

import sys

import keras
import tensorflow as tf


def find_running_optimizer():
    """The optimizer whose `apply` is running, or None.

    What Keras calls during `apply`, such as a constraint, is not told by
    whom, so the call stack is asked. In a `tf.function` this happens while
    the function is traced.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "apply":
            owner = frame.f_locals.get("self")
            if isinstance(owner, keras.optimizers.Optimizer):
                return owner
        frame = frame.f_back
    return None


class StepSize:
    """How far a running step moves a variable for each unit of gradient.

    `scale / divisor` is the step size of a coordinate, without momentum.
    `scale` is a number, mostly the learning rate. For an optimizer that
    divides by a running size of each coordinate's gradients, such as Adam,
    `divisor` is that size.

    Args:
        optimizer: Keras optimizer, built, that is about to advance
            `iterations`.
        variable: Keras variable that it trains.
        by_coordinate: Boolean. Whether to follow each coordinate. Otherwise
            `divisor` is 1 for all optimizers.

    Attributes:
        scale: float32 scalar tensor: 0 in a step that only accumulates
            gradients.
        slot: Keras variable of `variable`'s shape that `divisor` comes from,
            or None where it is 1.
    """

    def __init__(self, optimizer, variable, by_coordinate=True):
        # A wrapper's variables are those of the optimizer inside.
        inner = getattr(optimizer, "inner", optimizer)
        rule = _find_rule(inner) if by_coordinate else None
        step = tf.cast(optimizer.iterations, "float32") + 1
        scale = tf.cast(optimizer.learning_rate, "float32")
        self.slot = None
        if rule is not None:
            slot_name, make_scale, self._divisor = rule(inner)
            self.slot = _find_slot(optimizer, variable, slot_name)
            scale *= make_scale(step)
        accumulation = optimizer.gradient_accumulation_steps
        if accumulation:
            # `iterations` counts the steps that move weights; the first
            # variable of an optimizer counts all.
            calls = tf.cast(optimizer.variables[0].value, "int64") + 1
            scale = tf.where(tf.equal(calls % accumulation, 0), scale, 0.0)
        self.scale = scale

    def rates(self, values):
        """1 / divisor, from values of `slot`.

        It is 0 where no gradient came yet: the optimizer does not move such a
        coordinate either.
        """
        return tf.math.divide_no_nan(
            tf.sign(values), self._divisor(tf.cast(values, "float32"))
        )


def _find_slot(optimizer, variable, name):
    name = f"{variable.path.replace('/', '_')}_{name}"
    found = [slot for slot in optimizer.variables if slot.name == name]
    # Variables may share a path, as those of two towers do in a model that was
    # loaded. Their slots come in their order.
    inner = getattr(optimizer, "inner", optimizer)
    trained = inner._trainable_variables
    sharing = [each for each in trained if each.path == variable.path]
    places = [place for place, each in enumerate(sharing) if each is variable]
    if not places or len(found) != len(sharing):
        raise ValueError(
            f"The optimizer must keep a variable named {name!r} for each that "
            "it trains, for thresholds that follow each coordinate. Received: "
            f"{type(optimizer).__name__} with {len(found)} of that name, for "
            f"{len(sharing)} variables. Pass threshold='learning_rate' to the "
            "layer."
        )
    return found[places[0]]


def _find_rule(optimizer):
    for name, rule in _RULES:
        # Which of them there are depends on Keras's version.
        kind = getattr(keras.optimizers, name, None)
        if kind is not None and isinstance(optimizer, kind):
            return rule
    return None


def _one(step):
    return 1.0


def _adam(optimizer):
    amsgrad = getattr(optimizer, "amsgrad", False)
    return (
        "velocity_hat" if amsgrad else "velocity",
        lambda step: tf.sqrt(1 - tf.cast(optimizer.beta_2, "float32") ** step),
        lambda values: tf.sqrt(values) + optimizer.epsilon,
    )


def _root_of_sum(name):
    def rule(optimizer):
        return (
            name,
            _one,
            lambda values: tf.sqrt(values + optimizer.epsilon),
        )

    return rule


def _adamax(optimizer):
    return "norm", _one, lambda values: values + optimizer.epsilon


# What each divides by, from the `update_step` of Keras. AdamW is an Adam.
_RULES = (
    ("Adam", _adam),
    ("Nadam", _adam),
    ("RMSprop", _root_of_sum("velocity")),
    ("Adagrad", _root_of_sum("accumulator")),
    ("Adamax", _adamax),
)
