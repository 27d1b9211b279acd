"""What lets a layer act after each step of the optimizer."""

import keras

from keras_compembed.optimizers.running_optimizer import find_running_optimizer


class AfterStep(keras.constraints.Constraint):
    """Calls a function with the optimizer that has just moved a weight.

    Keras applies the constraint of a weight after each step, so a layer that
    wants to act then needs no callback and no optimizer of its own.

    Args:
        function: Called with a built Keras optimizer, whose `iterations` are
            still those before the step.
        constraint: Optional constraint, to be applied as well.
    """

    def __init__(self, function, constraint=None):
        self.function = function
        self.constraint = constraint

    def __call__(self, weight):
        optimizer = find_running_optimizer()
        if optimizer is not None:
            self.function(optimizer)
        return weight if self.constraint is None else self.constraint(weight)
