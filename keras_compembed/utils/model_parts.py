"""Layers of a model by name, and names of its outputs."""

import keras


def layer_paths(root):
    """Paths of all nested layers of a layer, each layer once."""
    paths, seen = {}, set()

    def search(layer, path):
        if id(layer) in seen:
            return
        seen.add(id(layer))
        paths[_new_path("/".join(path) or layer.name, paths)] = layer
        for inner in inner_layers(layer):
            search(inner, (*path, inner.name))

    search(root, ())
    return paths


def inner_layers(layer):
    """Direct sublayers of a layer or model."""
    return layer._flatten_layers(include_self=False, recursive=False)


def all_layers(root):
    """A layer and all its nested layers, each once."""
    return root._flatten_layers()


def own_variables(layer):
    """Variables of a layer, without those of sublayers."""
    found = {}
    for value in vars(layer).values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, keras.Variable):
                found[id(each)] = each
    return list(found.values())


def named_layers(root, classes):
    """Layers of some classes by name, or by path if a name repeats."""
    paths = {
        path: layer
        for path, layer in layer_paths(root).items()
        if isinstance(layer, classes)
    }
    names = [layer.name for layer in paths.values()]
    return {
        layer.name if names.count(layer.name) == 1 else path: layer
        for path, layer in paths.items()
    }


def _new_path(path, paths):
    number, new = 1, path
    while new in paths:
        number += 1
        new = f"{path}#{number}"
    return new


def layer_of(tensor):
    """The layer that a symbolic tensor comes from."""
    history = tensor._keras_history
    while is_open(history.operation):
        # A nested model: use its last layer.
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
    """Whether a layer is a Sequential or functional model."""
    return isinstance(layer, keras.Model) and bool(
        getattr(layer, "outputs", None)
    )


def output_names(model):
    """Names of the outputs of a model: keys or names of layers."""
    if isinstance(model, keras.Sequential):
        return [layer_of(output).name for output in model.outputs]
    paths = keras.tree.flatten_with_path(model.output)
    names = [
        next((key for key in path[::-1] if isinstance(key, str)), name)
        for (path, _), name in zip(paths, model.output_names, strict=True)
    ]
    # A shared layer has several outputs.
    before = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{x}_{n}" if n else x for x, n in zip(names, before, strict=True)]
