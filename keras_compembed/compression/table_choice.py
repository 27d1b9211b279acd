"""Which tables of a model codes can replace."""

import keras

from keras_compembed.compression.replaceable_layers import reason_to_skip
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.methods.method import check_method
from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_code_shape

# Settings of codes, in the order of the arguments of `Codes`.
CODES = ("num_codebooks", "codebook_size", "composition", "learner")
_SETTINGS = (*CODES, "method", "pooled", "sample_weight", "seed")


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


def why_left(layer, method, layers, wanted, min_bytes, held):
    """Why a table is left as it is, or None."""
    if layers is None:
        return reason_to_skip(layer, method, min_bytes, held)
    if id(layer) not in wanted:
        return "not named in `layers`"
    return reason_to_skip(layer, method, 0, held)


def leave(name, layer, wanted, reason):
    """What to say of a table that is left; raises if it was asked for."""
    if id(layer) in wanted:
        raise ValueError(
            "`layers` must name layers that can be replaced. "
            f"Received: {name!r}, but {reason}."
        )
    return f"{name}: left as it is, {reason}"


def check_found(model, found, skipped, verbose):
    """Raises if no table was found; otherwise says what was skipped."""
    if not found:
        raise ValueError(
            f"Nothing to compress in the model {model.name!r}: "
            + ("; ".join(skipped) or _why_no_tables(model))
            + "."
        )
    if verbose:
        print(*skipped, sep="\n", end="\n" if skipped else "")


def _why_no_tables(model):
    """What to say of a model without Embedding layers."""
    names = ", ".join(named_layers(model, LookupLayer))
    if not names:
        return "it has no Embedding layers"
    return (
        f"it has no Embedding layers, and is compressed already: {names}. "
        "Begin with the model that has their tables"
    )
