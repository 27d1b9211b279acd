"""The running optimizer, and the size of its steps."""

import sys

import keras
import tensorflow as tf

from keras_compembed.optimizers.device_rows import on_several_devices


def find_running_optimizer():
    """The optimizer with a running `apply`, or None."""
    return next(_running_optimizers(sys._getframe(1)), None)


def _running_optimizers(frame):
    """Optimizers with a running `apply`, innermost first."""
    while frame is not None:
        if frame.f_code.co_name == "apply":
            owner = frame.f_locals.get("self")
            if isinstance(owner, keras.optimizers.Optimizer):
                yield owner
        frame = frame.f_back


def losses_are_scaled(dtype):
    """Whether losses, and so gradients, are scaled for a layer's dtype."""
    if on_several_devices():
        # Gradients are applied in other threads.
        return dtype == "float16"
    scaling = keras.optimizers.LossScaleOptimizer
    running = _running_optimizers(sys._getframe(1))
    return any(isinstance(optimizer, scaling) for optimizer in running)


class StepSize:
    """How far a step moves a variable for each unit of gradient."""

    def __init__(self, optimizer, variable, by_coordinate=True):
        # A wrapper has the variables of the optimizer inside.
        inner = getattr(optimizer, "inner", optimizer)
        # The optimizers that exist depend on Keras's version.
        rules = (
            rule
            for name, rule in _RULES
            if isinstance(inner, getattr(keras.optimizers, name, ()))
        )
        rule = next(rules, None) if by_coordinate else None
        step = tf.cast(optimizer.iterations, "float32") + 1
        scale = tf.cast(optimizer.learning_rate, "float32")
        self.slot = None
        if rule is not None:
            slot_name, make_scale, self._divisor = rule(inner)
            self.slot = _find_slot(optimizer, variable, slot_name)
            scale *= make_scale(step)
        accumulation = optimizer.gradient_accumulation_steps
        self.accumulates = bool(accumulation)
        self.slots = {
            name: slot
            for name, slot in slots_of(inner, variable).items()
            if slot.shape == variable.shape
        }
        self._accumulator = getattr(inner, "initial_accumulator_value", 0.0)
        if accumulation:
            # `iterations` counts steps that move weights. The optimizer's
            # first variable counts all steps.
            calls = tf.cast(optimizer.variables[0].value, "int64") + 1
            scale = tf.where(tf.equal(calls % accumulation, 0), scale, 0.0)
        self.scale = scale

    def start_of(self, name):
        """The initial value of one of `slots`."""
        return self._accumulator if name.endswith("accumulators") else 0.0

    def rates(self, values):
        """1 / divisor from values of `slot`."""
        values = tf.cast(values, "float32")
        return tf.math.divide_no_nan(tf.sign(values), self._divisor(values))


def slots_of(optimizer, variable):
    """The slots of a variable, by attribute of the optimizer."""
    try:
        index = optimizer._get_variable_index(variable)
    except KeyError:
        return {}
    own = {id(each) for each in optimizer.variables}
    # Names are not enough, as a name may be a prefix of others.
    return {
        name: values[index]
        for name, values in vars(optimizer).items()
        if isinstance(values, list)
        and len(values) > index
        and id(values[index]) in own
        # Skip the list of all variables.
        and values[0] is not optimizer.iterations
    }


def _find_slot(optimizer, variable, name):
    # Variables, and their slots, may have the same name, e.g. in two towers of
    # a loaded model.
    name = f"{variable.path.replace('/', '_')}_{name}"
    slots = slots_of(getattr(optimizer, "inner", optimizer), variable)
    for slot in slots.values():
        if slot.name == name:
            return slot
    raise ValueError(
        f"The optimizer must have a slot variable {name!r} for thresholds by "
        f"coordinate. Received: {type(optimizer).__name__}, "
        "without it. Pass `l1=keras_compembed.anchors.L1(..., "
        "threshold='learning_rate')` to the layer."
    )


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
            lambda step: 1.0,
            lambda values: tf.sqrt(values + optimizer.epsilon),
        )

    return rule


def _adamax(optimizer):
    return "norm", lambda step: 1.0, lambda values: values + optimizer.epsilon


# The divisors in `update_step` of Keras optimizers. AdamW is an Adam.
_RULES = (
    ("Adam", _adam),
    ("Nadam", _adam),
    ("RMSprop", _root_of_sum("velocity")),
    ("Adagrad", _root_of_sum("accumulator")),
    ("Adamax", _adamax),
)


class SteppedVariable(keras.Variable):
    """A variable that calls a function after each optimizer step."""

    def __init__(self, *args, after_step, **kwargs):
        super().__init__(*args, **kwargs)
        self.constraint = _Follow(after_step)

    def assign(self, value):
        return value if value is self else super().assign(value)


class _Follow(keras.constraints.Constraint):
    def __init__(self, after_step):
        self.after_step = after_step

    def __call__(self, variable):
        optimizer = find_running_optimizer()
        if optimizer is not None:
            self.after_step(optimizer)
        return variable
