"""Copies of models by config and weights, without a file."""

import builtins
import codecs
import contextlib
import functools
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
from keras_compembed.exchange.exchange_layers import own_class
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.validation import on_one_line

_HALF = re.compile("(mixed_)?b?float16")
_NOT_IN_CONSTRUCTORS = {"name", "trainable", "dtype"}
_LIBRARIES = ("keras", "numpy", "tensorflow")


def copy_model(model, float32=False, mark=None, without=()):
    """An uncompiled copy of a model or layer, by its config and weights.

    With `float32`, the copy computes in float32. `mark` is a function that
    changes the `ModelConfig`. Layers in `without` get no weights.
    """
    for layer in all_layers(model):
        with _saying_why(model, layer):
            _check_graph(layer)
    with _saying_why(model, model), warnings.catch_warnings():
        # E.g. for lambdas in configs.
        warnings.simplefilter("ignore")
        config = ModelConfig(model)
        if mark is not None:
            mark(config)
        copy = config.make(float32)
    _tie_layers(model, copy)
    for layer, new in layer_pairs(model, copy):
        with _saying_why(model, layer), warnings.catch_warnings():
            # Keras warns if it makes arrays of variables.
            warnings.simplefilter("ignore")
            _take_over(layer, new, float32)
            if not any(layer is x for x in without):
                _copy_state(layer, new)
    if len(copy.variables) > len(model.variables):
        raise ValueError(
            "`model` must have no variable shared by layers: make one layer an "
            "attribute of the other, and part of its config. "
            f"Received: model={model.name!r}."
        )
    return copy


def layer_pairs(model, copy):
    """Yields pairs of each layer of a model and its copy."""
    yield model, copy
    for layer, places in layer_places(model).values():
        new = layer_at(copy, places[0])
        if new is not None:
            yield layer, new


def _check_graph(model):
    """Raises if a graph reads a variable: Keras makes it a constant."""
    for operation in getattr(model, "operations", ()):
        for node in operation._inbound_nodes:
            arguments = node.arguments.args, node.arguments.kwargs
            for value in keras.tree.flatten(arguments):
                if isinstance(value, keras.Variable):
                    raise ValueError(
                        f"its graph reads the variable {value.path!r}. Read it "
                        "in a layer with the variable's layer as an attribute "
                        "and in its config."
                    )


def _tie_layers(model, copy):
    """Makes layers that are one in the model one in the copy."""
    for _, places in layer_places(model).values():
        first, *others = [layer_at(copy, place) for place in places]
        others = [x for x in others if x is not first and x is not None]
        exchange_layers(copy, [(other, first) for other in others])


def _take_over(layer, new, float32):
    """Copies settings of a layer that are not in its config."""
    if new.name != layer.name:
        new.name = layer.name
    mode = getattr(layer, "quantization_mode", None)
    policy = layer.dtype_policy
    if not float32 and new.dtype_policy != policy:
        if isinstance(new.dtype_policy, keras.dtype_policies.DTypePolicyMap):
            # Set directly: Keras would change the shared policy map, and
            # drop names when it saves the map.
            new._dtype_policy = policy
        elif not (
            mode or isinstance(policy, keras.dtype_policies.DTypePolicyMap)
        ):
            new.dtype_policy = policy
    if layer.built and not new.built:
        new.build_from_config(layer.get_build_config() or {})
        new.built = True
    if mode and new.quantization_mode is None:
        new.quantize(mode, type_check=False)
    if new.trainable != layer.trainable:
        new.trainable = layer.trainable
    if hasattr(layer, "output_names"):
        new.output_names = list(layer.output_names)
    inputs = (getattr(x, "inputs", None) or () for x in (layer, new))
    for tensor, same in zip(*inputs, strict=False):
        same.name = tensor.name


def _copy_state(layer, new):
    """Copies the saved state of a layer, without its config."""
    store = {}
    layer.save_own_variables(store)
    if not type(new).load_own_variables.__module__.startswith("keras."):
        # Keras's variables share memory until one changes.
        to_array = keras.ops.convert_to_numpy
        store = {name: to_array(x) for name, x in store.items()}
    new.load_own_variables(store)
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            new.load_assets(folder)
    if isinstance(layer, keras.layers.RNN) and layer.stateful:
        # Keras does not track these variables.
        states = map(keras.tree.flatten, (layer.states, new.states))
        for state, other in zip(*states, strict=True):
            other.assign(state)


@contextlib.contextmanager
def _saying_why(model, layer):
    """Adds to errors which layer cannot be copied, and what to do."""
    try:
        yield
    except Exception as error:
        # User classes may raise any error, and Keras wraps it repeatedly.
        reason = error
        while reason.__context__ and "when calling" not in str(reason)[:40]:
            reason = reason.__context__
        text = on_one_line(reason)[:500]
        if "keys and values cannot be empty" in text:
            text = (
                "it has no vocabulary. Call its `adapt` or `set_vocabulary`: "
                "`clone_model` and `from_config` do not copy words."
            )
        is_shape = text.startswith("The shape of the target variable")
        for part in all_layers(model):
            name = type(part).__name__
            if text.startswith((f"Object {name} ", f"{name}.__init__() miss")):
                layer, text = part, _lines_to_add(type(part))
            elif is_shape and _has_arguments_alone(type(part)):
                # For models, Keras saves the default arguments only.
                layer, text = part, _lines_to_add(type(part))
        paths = {id(x): path for path, x in layer_paths(model).items()}
        raise ValueError(
            f"The layer {paths[id(layer)]!r} ({type(layer).__name__}) cannot "
            f"be copied: {text}"
        ) from error


def _has_arguments_alone(cls):
    """Whether a class has arguments, but no config for them."""
    is_default = (cls.get_config.__module__ or "").startswith("keras.")
    is_own = not cls.__module__.startswith("keras.")
    return is_default and is_own and bool(_arguments(cls))


def _arguments(cls):
    return [
        name
        for name, x in inspect.signature(cls).parameters.items()
        if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD) and name != "name"
    ]


def _lines_to_add(cls):
    """The message for a class that Keras cannot load."""
    names = _arguments(cls)
    pairs = "".join(f', "{name}": self.{name}' for name in names)
    return (
        "its class needs a `get_config` with all constructor arguments, and "
        "a `from_config` if one of them is a layer:\n\n"
        "    def get_config(self):\n"
        "        config = super().get_config()\n"
        f"        return {{**config{pairs}}}\n"
    )


class ModelConfig:
    """The config of a model as in a file, and objects it names."""

    def __init__(self, model):
        # The same layers without compile arguments.
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
                # Keras would run the lambda with its module's globals.
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
        """Gives an object a name for configs."""
        name = f"{kind}_{len(self.scope)}"
        self.scope[name] = item
        return name

    def make(self, float32=False):
        """A model from the config."""
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
        """Drops keys that Keras adds to automatic configs."""
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
    """Yields all dicts in a config, outer dicts first."""
    rest = [value]
    for item in rest:
        if isinstance(item, dict):
            yield item
            rest.extend(item.values())
        elif isinstance(item, (list, tuple)):
            rest.extend(item)


def _taken_apart(function):
    """A lambda in the form of Keras: code, defaults and closure."""
    code = codecs.encode(marshal.dumps(function.__code__), "base64")
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [code.decode(), function.__defaults__, cells or None]


def _lambda_in(part):
    """The text of a lambda in a config, which has one of three forms."""
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
    """Avoids random initial values where weights follow."""
    if part.get("module") == "keras.layers":
        for name, value in part["config"].items():
            if name.endswith("_initializer") and value is not None:
                part["config"][name] = "zeros"


def _set_float32(config):
    """Makes all half-precision dtypes and policies float32."""
    for part in dicts_in(config):
        start_with_zeros(part)
        if "batch_shape" in part:
            # Inputs keep their precision.
            continue
        for name, value in part.items():
            if isinstance(value, str) and name.endswith("dtype"):
                part[name] = _HALF.sub("float32", value)
        if "Policy" in str(part.get("class_name")):
            policy = _HALF.sub("float32", json.dumps(part["config"]))
            part["config"] = json.loads(policy)


def held_objects(root):
    """Yields an object and all objects in it, each once."""
    seen, rest = set(), [root]
    while rest:
        item = rest.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        rest.extend(_parts(item))


def custom_objects(root):
    """User functions and classes that an object's config may name."""
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
        # A closure variable has no value yet.
        return []
    return [
        *outside.nonlocals.values(),
        *outside.globals.values(),
        *(function.__defaults__ or ()),
    ]


def _is_of_library(item):
    # Classes of `exec`uted code are not real builtins.
    if item.__module__ == "builtins":
        return vars(builtins).get(item.__name__) is item
    return (item.__module__ or "").split(".")[0] in _LIBRARIES


def _is_found(item):
    """Whether Keras finds a library object by name."""
    if not isinstance(item, types.FunctionType):
        return True
    config = keras.saving.serialize_keras_object(item)
    try:
        return keras.saving.deserialize_keras_object(config) is item
    except (TypeError, ValueError):
        return False
