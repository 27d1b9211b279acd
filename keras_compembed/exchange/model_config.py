"""What Keras writes of a model, and a model made of it."""

import builtins
import codecs
import functools
import inspect
import json
import marshal
import re
import types

import keras

from keras_compembed.exchange.exchanged_layers import own_class

_HALF = re.compile("(mixed_)?b?float16")
_NOT_IN_CONSTRUCTORS = {"name", "trainable", "dtype"}
_LIBRARIES = ("keras", "numpy", "tensorflow")


class ModelConfig:
    """The config of a model as a file has it, and what it names."""

    def __init__(self, model):
        # The same layers, without what `compile` was given.
        plain = object.__new__(type(model))
        vars(plain).update(vars(model), compiled=False)
        config = keras.saving.serialize_keras_object(plain)
        self.scope = custom_objects(model)
        lambdas = {
            _as_text(_taken_apart(item)): item
            for item in held_objects(model)
            if isinstance(item, types.FunctionType)
            and item.__name__ == "<lambda>"
        }
        for part in dicts_in(config):
            part.pop("compile_config", None)
            self._drop_unknown(part)
            function = lambdas.get(_lambda_in(part))
            if function is not None:
                # Keras would run its code with the globals of its own module.
                name = self.add("lambda", function)
                part.clear()
                part.update(
                    module="builtins",
                    class_name="function",
                    config=name,
                    registered_name=name,
                )
        self.config = json.loads(json.dumps(config))

    def add(self, kind, item):
        """Gives something a name in configs."""
        name = f"{kind}_{len(self.scope)}"
        self.scope[name] = item
        return name

    def make(self, float32=False):
        """A model of the config."""
        policy = keras.config.dtype_policy()
        config = json.loads(json.dumps(self.config))
        try:
            if float32:
                _set_float32(config)
                keras.config.set_dtype_policy("float32")
            with keras.utils.custom_object_scope(self.scope):
                return keras.saving.deserialize_keras_object(
                    config, safe_mode=False
                )
        finally:
            keras.config.set_dtype_policy(policy)

    def _drop_unknown(self, part):
        """Drops what Keras adds to a config that it makes up for a class."""
        cls = self.scope.get(part.get("class_name"))
        get_config = getattr(cls, "get_config", None)
        if not (getattr(get_config, "__module__", "") or "").startswith(
            "keras."
        ):
            return
        parameters = inspect.signature(cls).parameters
        if all(x.kind is not x.VAR_KEYWORD for x in parameters.values()):
            for name in _NOT_IN_CONSTRUCTORS.difference(parameters):
                part.get("config", {}).pop(name, None)


def dicts_in(value):
    """Yields all dicts in a config, outer ones first."""
    rest = [value]
    for item in rest:
        if isinstance(item, dict):
            yield item
            rest.extend(item.values())
        elif isinstance(item, (list, tuple)):
            rest.extend(item)


def _taken_apart(function):
    """A lambda as Keras writes it: its code, defaults and closure."""
    code = codecs.encode(marshal.dumps(function.__code__), "base64")
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [code.decode(), function.__defaults__, cells or None]


def _lambda_in(part):
    """The text of a lambda, which is in a config in one of three ways."""
    config = part.get("config") if "class_name" in part else part
    if not isinstance(config, dict):
        return None
    if list(config) == ["value"] and isinstance(config["value"], tuple):
        return _as_text(config["value"])
    if list(config) == ["code", "defaults", "closure"]:
        return _as_text(config.values())
    return None


def _as_text(values):
    values = keras.saving.serialize_keras_object(list(values))
    return json.dumps(values, default=repr)


def start_with_zeros(part):
    """Leaves random numbers out, which take memory, where values follow."""
    if part.get("module") == "keras.layers":
        for name, value in part["config"].items():
            if name.endswith("_initializer") and value is not None:
                part["config"][name] = "zeros"


def _set_float32(config):
    """Makes all dtypes and policies of half precision in a config float32."""
    for part in dicts_in(config):
        start_with_zeros(part)
        if "batch_shape" in part:
            # Inputs are rounded as they were.
            continue
        for name, value in part.items():
            if isinstance(value, str) and name.endswith("dtype"):
                part[name] = _HALF.sub("float32", value)
        if "Policy" in str(part.get("class_name")):
            policy = _HALF.sub("float32", json.dumps(part["config"]))
            part["config"] = json.loads(policy)


def held_objects(root):
    """Yields an object and what it holds, however deep, each thing once."""
    seen, rest = set(), [root]
    while rest:
        item = rest.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        rest.extend(_parts(item))


def custom_objects(root):
    """Functions and classes of the user that an object's config may name."""
    found = {}
    for item in held_objects(root):
        if not isinstance(item, types.FunctionType):
            if not hasattr(item, "get_config"):
                continue
            item = item if isinstance(item, type) else own_class(item)
        if not (_is_of_library(item) and _is_found(item)):
            found.setdefault(item.__name__, item)
    return found


def _parts(item):
    if isinstance(item, (list, tuple, set)):
        return list(item)
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, types.FunctionType):
        return [] if _is_of_library(item) else _read_from_outside(item)
    if isinstance(item, (type, types.ModuleType)):
        return []
    if hasattr(item, "get_config") or not _is_of_library(type(item)):
        return list(getattr(item, "__dict__", {}).values())
    return []


def _read_from_outside(function):
    try:
        outside = inspect.getclosurevars(function)
    except ValueError:
        # A variable of its closure has no value yet.
        return []
    return [
        *outside.nonlocals.values(),
        *outside.globals.values(),
        *(function.__defaults__ or ()),
    ]


def _is_of_library(item):
    # Classes of code that was executed without a name are no builtins.
    if item.__module__ == "builtins":
        return vars(builtins).get(item.__name__) is item
    return (item.__module__ or "").split(".")[0] in _LIBRARIES


def _is_found(item):
    """Whether Keras knows the name of something of a library."""
    if not isinstance(item, types.FunctionType):
        return True
    config = keras.saving.serialize_keras_object(item)
    try:
        return keras.saving.deserialize_keras_object(config) is item
    except (TypeError, ValueError):
        return False
