"""Layers of a model by name, and by path where names repeat."""

import keras


def layer_paths(root):
    """Paths of all layers in a layer, however deep, each layer once."""
    paths, seen = {}, set()

    def search(layer, path):
        if id(layer) in seen:
            return
        seen.add(id(layer))
        paths[_new_path("/".join(path) or layer.name, paths)] = layer
        for inner in layer._flatten_layers(include_self=False, recursive=False):
            search(inner, (*path, inner.name))

    search(root, ())
    return paths


def own_variables(layer):
    """Variables of a layer, without those of layers in it."""
    found = {}
    for value in vars(layer).values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, keras.Variable):
                found[id(each)] = each
    return list(found.values())


def named_layers(root, classes):
    """Layers of some classes by name, or by path where a name repeats."""
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
