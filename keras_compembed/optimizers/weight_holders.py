"""Optimizers and models that hold weights which a layer exchanges."""

import contextlib
import gc

import keras
import numpy as np
from keras.src.utils.tracking import DotNotTrackScope


def exchange_in_holders(layer, exchanges):
    """Puts other weights in the place of weights that a layer had."""
    exchanges = {id(old): (old, new) for old, new in exchanges}
    optimizers, models = _alive(keras.optimizers.Optimizer, keras.Model)
    for optimizer in optimizers:
        if getattr(optimizer, "built", False):
            _exchange(optimizer, exchanges)
    for model in models:
        _remake_functions(model, layer)


def longer(variable, rows):
    """A variable like another, with rows added."""
    # NumPy does not know how to join all dtypes.
    value = keras.ops.convert_to_numpy(variable)
    value = np.concatenate([value, np.asarray(rows).astype(value.dtype)])
    with device_scope(variable):
        new = keras.Variable(
            initializer=keras.ops.convert_to_tensor(value, variable.dtype),
            dtype=variable.dtype,
            trainable=variable.trainable,
            autocast=variable._autocast,
            aggregation=variable.aggregation,
            name=variable.name,
        )
    new.regularizer = variable.regularizer
    new.constraint = variable.constraint
    take_name(new, variable)
    return new


def take_name(variable, old):
    """Gives a variable the path of another, by which optimizers name slots."""
    variable._path = old.path


def device_scope(variable):
    """A context in which variables are made on the devices of another."""
    strategy = getattr(variable.value, "distribute_strategy", None)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


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


def _exchange(optimizer, exchanges):
    trained = list(optimizer._trainable_variables)
    if not any(id(weight) in exchanges for weight in trained):
        return
    before, slots = list(optimizer._variables), {}
    for name, values in list(vars(optimizer).items()):
        # Keras's optimizers keep slots in lists with an entry for each
        # variable, and have no public way to take one out.
        if (
            name == "_variables"
            or not isinstance(values, (list, tuple))
            or len(values) != len(trained)
            or not all(_is_variable_or_none(value) for value in values)
        ):
            continue
        made = []
        for weight, value in zip(trained, values, strict=True):
            if id(weight) in exchanges:
                _, new = exchanges[id(weight)]
                if new is None:
                    slots[id(value)] = None
                    continue
                slot = new
                if value is not weight:
                    slot = _slot(optimizer, name, value, weight, new)
                    slots[id(value)] = slot
                value = slot
            made.append(value)
        # TensorFlow saves what an attribute was before, unless it is deleted.
        delattr(optimizer, name)
        setattr(optimizer, name, made)
    # In their places, by which files name them.
    variables = [slots.get(id(one), one) for one in before]
    variables = [one for one in variables if one is not None]
    kept = {id(one) for one in variables}
    # Keras takes each variable in a list assigned for one of the optimizer.
    for variable in list(optimizer._variables):
        if id(variable) not in kept:
            optimizer._tracker.untrack(variable)
    # TensorFlow does not save a list that something was taken out of.
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


def _slot(optimizer, name, slot, old, new):
    if slot is None:
        return None
    longer = new.shape[1:] == old.shape[1:] and new.shape[0] > old.shape[0]
    if longer:
        return _longer_slot(optimizer, name, slot, old, new)
    # As another optimizer of the kind makes it.
    fresh = type(optimizer).from_config(optimizer.get_config())
    with device_scope(new):
        fresh.build([new])
    return getattr(fresh, name)[0]


def _longer_slot(optimizer, name, slot, old, new):
    """A slot for more rows: what it starts from is added."""
    rows = new.shape[0] - old.shape[0]
    if tuple(slot.shape) not in (tuple(old.shape), tuple(old.shape[:-1])):
        # Of columns, as Adafactor keeps.
        return slot
    start = 0.0
    if name == "_accumulators":
        start = getattr(optimizer, "initial_accumulator_value", start)
    added = np.full((rows, *slot.shape[1:]), start)
    if name == "_model_variables_moving_average":
        added = keras.ops.convert_to_numpy(new)[-rows:]
    return longer(slot, added)


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
