"""Copies of models with some layers exchanged."""

import contextlib
import tempfile

import keras


def is_searchable(layer):
    """Whether a layer is a model whose layers can be exchanged one by one."""
    # Functional models, and no others, have `operations`.
    return isinstance(layer, keras.Sequential) or hasattr(layer, "operations")


def exchangeable_layers(model):
    """All layers that `copy_model` can exchange, each once."""
    found = {}
    for layer in model.layers:
        if is_searchable(layer):
            found.update(
                (id(inner), inner) for inner in exchangeable_layers(layer)
            )
        else:
            found[id(layer)] = layer
    return list(found.values())


def copy_model(model, replacements):
    """Copies a Sequential or functional model, weights and all.

    Args:
        model: A built model.
        replacements: Dict from the `id` of a layer to the layer that takes
            its place in the copy.

    Returns:
        A model, not compiled, that shares nothing with the one given.
    """

    def copy_layer(layer):
        if id(layer) in replacements:
            return replacements[id(layer)]
        return layer.__class__.from_config(layer.get_config())

    with _uncompiled(model):
        copy = keras.models.clone_model(
            model, clone_function=copy_layer, recursive=True
        )
    _copy_state(model, copy, replacements)
    return copy


@contextlib.contextmanager
def _uncompiled(model):
    """Keeps `clone_model` from copying losses, which fails for some."""
    models = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.Model) and layer.compiled
    ]
    try:
        for compiled in models:
            compiled.compiled = False
        yield
    finally:
        for compiled in models:
            compiled.compiled = True


def _copy_state(old, new, replacements):
    # From the outside in: `trainable` of a layer sets that of its parts.
    new.trainable = old.trainable
    if id(old) in replacements:
        return
    if is_searchable(old):
        for layer in old.layers:
            # An input named by Keras gets another name in the copy.
            if isinstance(layer, keras.layers.InputLayer):
                continue
            _copy_state(layer, new.get_layer(layer.name), replacements)
        return
    for layer, same in zip(
        old._flatten_layers(), new._flatten_layers(), strict=True
    ):
        same.trainable = layer.trainable
    for variable, same in zip(old.variables, new.variables, strict=True):
        same.assign(variable)
    if hasattr(old, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            old.save_assets(folder)
            new.load_assets(folder)
