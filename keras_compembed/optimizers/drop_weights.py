"""Weights that a layer lets go of, wherever they are held."""

import gc

import keras
from keras.src.utils.tracking import DotNotTrackScope


def drop_weights(layer, weights):
    """Takes weights from a layer, from optimizers and from models.

    Optimizers forget the weights and their slots for them, which would be
    saved with the model. Models that hold the layer trace their functions for
    training, testing and predicting again.

    Neither knows of a layer, nor a layer of them: of what is alive, all are
    asked.

    Args:
        layer: Built Keras layer.
        weights: List of its variables.
    """
    names = {id(value): name for name, value in vars(layer).items()}
    for weight in weights:
        layer._untrack_variable(weight)
        if id(weight) in names:
            # That of `Layer` collects garbage each time.
            super(keras.Layer, layer).__delattr__(names[id(weight)])
    optimizers, models = _alive(keras.optimizers.Optimizer, keras.Model)
    for optimizer in optimizers:
        if getattr(optimizer, "built", False):
            _forget(optimizer, weights)
    for model in models:
        _remake_functions(model, layer)


def _alive(*kinds):
    """Lists of all objects of each kind."""
    alive = gc.get_objects()
    # Types are few. Not `isinstance`, which proxies of all kinds answer by
    # working.
    types = set(map(type, alive))
    found = []
    for kind in kinds:
        of_kind = {one for one in types if issubclass(one, kind)}
        found.append([one for one in alive if type(one) in of_kind])
    return found


def _forget(optimizer, weights):
    gone = {id(weight) for weight in weights}
    kept = [id(one) not in gone for one in optimizer._trainable_variables]
    if all(kept):
        return
    own = {id(variable) for variable in optimizer._variables}
    slots = set()
    for name, values in list(vars(optimizer).items()):
        # Keras's optimizers keep slots in lists with an entry for each
        # variable, and have no public way to take one out.
        if (
            name == "_variables"
            or not isinstance(values, (list, tuple))
            or len(values) != len(kept)
            or not all(_is_variable_or_none(value) for value in values)
        ):
            continue
        pairs = list(zip(values, kept, strict=True))
        slots |= {id(value) for value, keep in pairs if not keep}
        # TensorFlow saves what an attribute was before, unless it is deleted.
        delattr(optimizer, name)
        setattr(optimizer, name, [value for value, keep in pairs if keep])
    # Keras takes each variable in a list assigned for one of the optimizer.
    for variable in list(optimizer._variables):
        if id(variable) in slots or id(variable) not in own:
            optimizer._tracker.untrack(variable)
    # TensorFlow does not save a list that something was taken out of.
    variables = list(optimizer._variables)
    is_variable, _ = optimizer._tracker.config["variables"]
    delattr(optimizer, "_variables")
    # A list that tracks what is added to it cannot be what tracking adds to.
    with DotNotTrackScope():
        optimizer._variables = variables
    optimizer._tracker.config["variables"] = is_variable, optimizer._variables
    optimizer._trainable_variables_indices = {
        optimizer._var_key(variable): index
        for index, variable in enumerate(optimizer._trainable_variables)
    }


def _is_variable_or_none(value):
    return value is None or isinstance(value, keras.Variable)


def _remake_functions(model, layer):
    made = [
        kind
        for kind in ("train", "test", "predict")
        if getattr(model, f"{kind}_function", None) is not None
    ]
    if made and any(one is layer for one in model._flatten_layers()):
        for kind in made:
            getattr(model, f"make_{kind}_function")(force=True)
