"""Variables of Keras as arrays of a checkpoint."""

import keras

_NAME = "variable_{}"


def arrays_of_variables(variables):
    """Dict of arrays, by the places of variables in a list."""
    return {
        _NAME.format(place): keras.ops.convert_to_numpy(variable)
        for place, variable in enumerate(variables)
    }


def assign_arrays(variables, arrays):
    """Gives variables what `arrays_of_variables` took of them."""
    for place, variable in enumerate(variables):
        variable.assign(arrays[_NAME.format(place)])
