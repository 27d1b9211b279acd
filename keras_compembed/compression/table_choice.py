"""Which tables of a model codes can replace."""

import keras

from keras_compembed.methods.method import check_method
from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_code_shape

# Settings of codes, in the order of the arguments of `Codes`.
CODES = ("num_codebooks", "codebook_size", "composition", "learner")
_SETTINGS = (
    *CODES,
    "method",
    "pooled",
    "sample_weight",
    "seed",
)


def read_names(model, layers, layer_settings):
    """The `id`s of layers named, and settings by the `id` of the layer."""
    if isinstance(layers, str):
        raise ValueError(
            f"`layers` must be a list of names. Received: layers={layers!r}."
        )
    paths = {
        path: layer
        for path, layer in layer_paths(model).items()
        if isinstance(layer, keras.layers.Embedding)
    }
    named = {id(_find("layers", name, paths)) for name in layers or ()}
    settings = {}
    for name, own in layer_settings.items():
        unknown = sorted(set(own) - set(_SETTINGS))
        if unknown:
            raise ValueError(
                f"`layer_settings` may set {', '.join(_SETTINGS)}. "
                f"Received: {unknown} for the layer {name!r}."
            )
        check_code_shape(
            own.get("num_codebooks", 1), own.get("codebook_size", 2)
        )
        if own.get("method") is not None:
            check_method("method", own["method"])
            codes = sorted(set(own) & set(CODES))
            if codes:
                raise ValueError(
                    "`layer_settings` must not give a layer a `method` and "
                    f"{', '.join(codes)}, which are settings of codes. "
                    f"Received: both for the layer {name!r}. Pass "
                    "`keras_compembed.methods.Codes(...)` with them."
                )
        if own.get("pooled") is not None:
            check_boolean("pooled", own["pooled"])
        layer = _find("layer_settings", name, paths)
        if id(layer) in settings:
            raise ValueError(
                "`layer_settings` must name each layer once. Received: "
                f"{name!r}, and another name of the same layer."
            )
        settings[id(layer)] = own
    return named, settings


def _find(argument, name, paths):
    """The Embedding layer of a path, or of a name that is one layer's."""
    if name in paths:
        return paths[name]
    found = {path: x for path, x in paths.items() if x.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(
            f"`{argument}` must name layers by path where several have one "
            f"name. Received: {name!r}, the name of {sorted(found)}."
        )
    names = sorted({layer.name for layer in paths.values()})
    raise ValueError(
        f"`{argument}` must name Embedding layers of the model, "
        f"which are {names}. Received: {name!r}."
    )


def layers_that_hold(model):
    """Dict from the `id` of a variable to the layers that have it as theirs."""
    found = {}
    for path, layer in layer_paths(model).items():
        own = layer._trainable_variables + layer._non_trainable_variables
        for variable in own:
            found.setdefault(id(variable), {})[id(layer)] = path
    return found
