"""Outputs of functional models: their names, and the layers they are of."""

import keras


def layer_of(tensor):
    """The layer that a symbolic tensor comes from.

    Args:
        tensor: `keras.KerasTensor` of a Sequential or functional model.
    """
    history = tensor._keras_history
    while isinstance(history.operation, keras.Model):
        # A model within a model: its own last layer.
        inner = history.operation.outputs[history.tensor_index]
        history = inner._keras_history
    return history.operation


def output_names(model):
    """Names of the outputs of a functional model: keys, or those of layers."""
    paths = keras.tree.flatten_with_path(model.output)
    return [
        next((key for key in path[::-1] if isinstance(key, str)), name)
        for (path, _), name in zip(paths, model.output_names, strict=True)
    ]
