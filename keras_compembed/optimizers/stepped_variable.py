"""Variable that is changed further after each step of an optimizer."""

import keras

from keras_compembed.optimizers.running_optimizer import find_running_optimizer


class SteppedVariable(keras.Variable):
    """Calls a function each time that an optimizer has moved it."""

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
