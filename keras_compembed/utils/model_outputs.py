"""Outputs of functional models: their names, and the layers they are of."""

import keras


def layer_of(tensor):
    """The layer that a symbolic tensor comes from."""
    history = tensor._keras_history
    while is_open(history.operation):
        # A model within a model: its own last layer.
        inner = history.operation.outputs[history.tensor_index]
        history = inner._keras_history
    return history.operation


def list_nodes(outputs):
    """Calls of layers and ops that lead to some symbolic tensors."""
    found, left = {}, list(outputs)
    while left:
        node = node_of(left.pop())
        if id(node) not in found:
            found[id(node)] = node
            left += node.input_tensors
    return [node for node in found.values() if not node.is_input]


def node_of(tensor):
    """The call that a symbolic tensor comes from."""
    history = tensor._keras_history
    return history.operation._inbound_nodes[history.node_index]


def is_open(layer):
    """Whether a layer is a model whose own layers are known."""
    return isinstance(layer, keras.Model) and bool(
        getattr(layer, "outputs", None)
    )


def output_names(model):
    """Names of the outputs of a model: keys, or those of layers."""
    if isinstance(model, keras.Sequential):
        return [layer_of(output).name for output in model.outputs]
    paths = keras.tree.flatten_with_path(model.output)
    return [
        next((key for key in path[::-1] if isinstance(key, str)), name)
        for (path, _), name in zip(paths, model.output_names, strict=True)
    ]
