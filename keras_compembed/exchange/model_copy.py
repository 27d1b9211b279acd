"""Copies of models, as Keras saves and loads them, without a file."""

import codecs
import contextlib
import inspect
import json
import marshal
import re
import tempfile
import types
import warnings

import keras

from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.exchange_layers import layer_at
from keras_compembed.exchange.exchange_layers import layer_places
from keras_compembed.exchange.held_objects import custom_objects
from keras_compembed.exchange.held_objects import held_objects
from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.validation import on_one_line

_HALF = re.compile("(mixed_)?b?float16")


def copy_model(model, float32=False, classes=None):
    """A copy of a model or layer, not compiled, by its config and weights.

    `float32` is for models of half precision. `classes` are others for some of
    the model's, by the names that Keras knows them by.
    """
    lambdas = {
        f"lambda_{number}": item
        for number, item in enumerate(held_objects(model))
        if isinstance(item, types.FunctionType) and item.__name__ == "<lambda>"
    }
    with _saying_why(model, model), warnings.catch_warnings():
        # E.g. of lambdas in configs.
        warnings.simplefilter("ignore")
        scope = {**custom_objects(model), **lambdas, **(classes or {})}
        config = _get_config(model, scope, lambdas)
        policy = keras.config.dtype_policy()
        if float32:
            _set_float32(config)
            keras.config.set_dtype_policy("float32")
        try:
            with keras.utils.custom_object_scope(scope):
                copy = keras.saving.deserialize_keras_object(
                    config, safe_mode=False
                )
        finally:
            keras.config.set_dtype_policy(policy)
    tie_layers(model, copy)
    for layer, new in layer_pairs(model, copy):
        with _saying_why(model, layer):
            _take_over(layer, new, float32)
    return copy


def layer_pairs(model, copy):
    """Yields each layer of a model, however deep, and the same of a copy."""
    yield model, copy
    for layer, places in layer_places(model).values():
        new = layer_at(copy, places[0])
        if new is not None:
            yield layer, new


def tie_layers(model, copy):
    """Makes one layer of those that are one in the model."""
    for _, places in layer_places(model).values():
        first, *others = [layer_at(copy, place) for place in places]
        others = [x for x in others if x is not first and x is not None]
        exchange_layers(copy, [(other, first) for other in others])


def _get_config(model, classes, lambdas):
    """The config of a model as files have it, but for its lambdas."""
    # The same layers, without what `compile` was given.
    plain = object.__new__(type(model))
    vars(plain).update(vars(model), compiled=False)
    config = keras.saving.serialize_keras_object(plain)
    names = {_taken_apart(item): name for name, item in lambdas.items()}
    for part in _dicts_in(config):
        if "class_name" in part:
            part.pop("compile_config", None)
            _drop_unknown(part, classes)
        parts = part.get("config") if "class_name" in part else part
        name = isinstance(parts, dict) and names.get(_lambda_in(parts))
        if name:
            # Keras would run its code with the globals of a module of its own.
            part.clear()
            part.update(
                module="builtins",
                class_name="function",
                config=name,
                registered_name=name,
            )
    return json.loads(json.dumps(config))


def _taken_apart(function):
    """A lambda as Keras writes it: its code, defaults and closure."""
    code = codecs.encode(marshal.dumps(function.__code__), "base64")
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return _as_text([code.decode(), function.__defaults__, cells or None])


def _lambda_in(config):
    """A lambda in a config, in one of the two ways in which it may be there."""
    if list(config) == ["value"] and isinstance(config["value"], tuple):
        return _as_text(config["value"])
    if list(config) == ["code", "defaults", "closure"]:
        return _as_text(config.values())
    return None


def _drop_unknown(part, classes):
    """Drops what Keras adds to a config that it makes up for a class."""
    cls = classes.get(part["class_name"])
    if not hasattr(cls, "get_config"):
        return
    parameters = inspect.signature(cls).parameters
    if (cls.get_config.__module__ or "").startswith("keras.") and not any(
        x.kind is x.VAR_KEYWORD for x in parameters.values()
    ):
        for name in {"name", "trainable", "dtype"}.difference(parameters):
            part["config"].pop(name, None)


def _as_text(value):
    value = keras.saving.serialize_keras_object(list(value))
    return json.dumps(value, default=repr)


def _dicts_in(value):
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, (list, tuple)) else ():
        yield from _dicts_in(item)


def _set_float32(config):
    """Makes all dtypes and policies of half precision in a config float32."""
    for part in _dicts_in(config):
        is_policy = "Policy" in str(part.get("class_name"))
        for name, value in part.items():
            if isinstance(value, str) and name.endswith("dtype"):
                part[name] = _HALF.sub("float32", value)
        if is_policy:
            part["config"] = json.loads(
                _HALF.sub("float32", json.dumps(part["config"]))
            )


def _take_over(layer, new, float32):
    """Gives the layer of a copy what its config does not tell of a layer."""
    if new.name != layer.name:
        new.name = layer.name
    policy = layer.dtype_policy
    mode = getattr(layer, "quantization_mode", None)
    if not float32 and mode is None and new.dtype_policy != policy:
        new.dtype_policy = policy
    if layer.built and not new.built:
        new.build_from_config(layer.get_build_config() or {})
        new.built = True
    if mode is not None and new.quantization_mode is None:
        new.quantize(mode, type_check=False)
    store = {}
    layer.save_own_variables(store)
    new.load_own_variables(
        {
            name: keras.ops.convert_to_numpy(value)
            for name, value in store.items()
        }
    )
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            new.load_assets(folder)
    if isinstance(layer, keras.layers.RNN) and layer.stateful:
        # Variables that Keras does not track.
        states = map(keras.tree.flatten, (layer.states, new.states))
        for state, other in zip(*states, strict=True):
            other.assign(state)
    if new.trainable != layer.trainable:
        new.trainable = layer.trainable


@contextlib.contextmanager
def _saying_why(model, layer):
    """Says which layer it is that cannot be copied, and what to do."""
    try:
        yield
    except Exception as error:
        # Whatever the user's own classes raise.
        reason = error
        while reason.__context__ is not None:
            reason = reason.__context__
        for part in model._flatten_layers():
            name = type(part).__name__
            if (
                str(reason)
                .strip()
                .startswith(
                    (f"Object {name} was", f"{name}.__init__() missing")
                )
            ):
                raise ValueError(_lines_to_add(type(part))) from error
        paths = {id(x): path for path, x in layer_paths(model).items()}
        more = ""
        if layer is model and getattr(model, "inputs", None):
            more = (
                " A plain functional model may be copied, without the methods "
                "of the class: keras.Model(model.inputs, model.outputs)."
            )
        raise ValueError(
            f"The layer {paths[id(layer)]!r} ({type(layer).__name__}) cannot "
            f"be copied: {on_one_line(reason)[:500]}{more}"
        ) from error


def _lines_to_add(cls):
    """What to say of a class that Keras cannot make again."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    pairs = ", ".join(
        f'"{x.name}": self.{x.name}'
        for x in parameters
        if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD) and x.name != "name"
    )
    return (
        f"The class {cls.__name__} must have a `get_config` to be copied, and "
        "a `from_config` where an argument is a layer. Add to it:\n\n"
        "    def get_config(self):\n"
        "        config = super().get_config()\n"
        f"        return {{**config, {pairs}}}\n"
    )
