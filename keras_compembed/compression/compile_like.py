"""Copies of models, compiled as the models are."""

import re
import warnings

import keras

from keras_compembed.exchange.model_copy import custom_objects
from keras_compembed.exchange.model_copy import held_objects
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.validation import on_one_line

_PLAIN = (bool, float, int, str, type(None))


def compile_like(copy, model, compile=None):
    """Compiles a copy with the arguments that the model was compiled with."""
    if compile is not None:
        compile(copy)
        return
    if not model.compiled:
        return
    try:
        with warnings.catch_warnings():
            # E.g. of what the copy cannot compile with XLA.
            warnings.simplefilter("ignore")
            _compile(copy, model)
    except Exception as error:
        # Whatever the user's own classes raise.
        reason = on_one_line(error)
        warnings.warn(
            "The copy is not compiled, since the model's compile arguments "
            f"cannot be copied: {reason[:300]} Call `compile` on the copy.",
            stacklevel=3,
        )


def _compile(copy, model):
    if type(model).compile is not keras.Model.compile:
        # Its constructor may have compiled it, in a way of its own.
        copy.compiled = False
        copy.compile_from_config(model.get_compile_config())
        if not copy.compiled:
            raise ValueError(
                f"{type(model).__name__} has a `compile` of its own, and no "
                "`compile_from_config`."
            )
        return
    # Not `get_compile_config`, from which a function that is not registered
    # with Keras cannot be had again.
    arguments = dict(model._compile_config.config)
    _check_reads_nothing_of(model, arguments)
    optimizer = arguments["optimizer"]
    arguments["optimizer"] = _made_again(optimizer)
    if optimizer is not None:
        _exclude_same(arguments["optimizer"], optimizer, model.variables)
    metrics = {}

    def fresh(item):
        if isinstance(item, keras.metrics.Metric) and id(item) not in metrics:
            metrics[id(item)] = _made_again(item)
        return metrics.get(id(item), item)

    for name in ("metrics", "weighted_metrics"):
        arguments[name] = keras.tree.map_structure(fresh, arguments[name])
    scaling = keras.optimizers.LossScaleOptimizer
    is_scaled = isinstance(model.optimizer, scaling)
    copy.compile(**arguments, auto_scale_loss=is_scaled)
    if copy.optimizer is not None:
        # Files of models whose optimizer has no variables yet do not load.
        copy.optimizer.build(copy.trainable_variables)


def _check_reads_nothing_of(model, arguments):
    own = {id(layer) for layer in all_layers(model)}
    own.update(id(variable) for variable in model.variables)
    for name in ("loss", "metrics", "weighted_metrics"):
        for item in held_objects(arguments[name]):
            if id(item) in own:
                raise ValueError(
                    f"`{name}` reads {item.name!r} of the model itself."
                )


def _made_again(item):
    """An optimizer or metric of the same class and config, without state."""
    if item is None:
        return None
    with keras.utils.custom_object_scope(custom_objects(item)):
        new = type(item).from_config(item.get_config())
    for name, value in vars(item).items():
        if name == "built" or name.startswith("_"):
            continue
        if isinstance(value, _PLAIN) and getattr(new, name, None) != value:
            raise ValueError(
                f"the config of {type(item).__name__} does not carry "
                f"`{name}`={value!r}; implement its `get_config`."
            )
    return new


def _exclude_same(new, optimizer, variables):
    """Excludes from weight decay what another does; no config tells of it."""
    for names in vars(optimizer).values():
        if isinstance(names, re.Pattern):
            new.exclude_from_weight_decay(var_names=[names.pattern])
    for x in variables:
        if optimizer._use_weight_decay(x) != new._use_weight_decay(x):
            raise ValueError(
                "its optimizer excludes variables of the model itself from "
                "weight decay; `var_names` would hold for the copy as well."
            )
    for name, inner in vars(optimizer).items():
        if isinstance(inner, keras.optimizers.Optimizer):
            _exclude_same(getattr(new, name), inner, variables)
