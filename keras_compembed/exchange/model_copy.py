"""Copies of models, as Keras saves and loads them, without a file."""

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
    """A copy of a model or layer, not compiled, by its config and weights.

    With `float32`, it computes in that, from such variables. `mark` is a
    function that changes the `ModelConfig`; layers in `without` get no weights.
    """
    for layer in all_layers(model):
        with _saying_why(model, layer):
            _check_graph(layer)
    with _saying_why(model, model), warnings.catch_warnings():
        # E.g. of lambdas in configs.
        warnings.simplefilter("ignore")
        config = ModelConfig(model)
        if mark is not None:
            mark(config)
        copy = config.make(float32)
    _tie_layers(model, copy)
    for layer, new in layer_pairs(model, copy):
        with _saying_why(model, layer), warnings.catch_warnings():
            # Of arrays made of variables, in Keras.
            warnings.simplefilter("ignore")
            _take_over(layer, new, float32)
            if not any(layer is x for x in without):
                _copy_state(layer, new)
    if len(copy.variables) > len(model.variables):
        raise ValueError(
            "Layers of the model share a variable, and a copy would hold it "
            "twice. Let one of them have the other as an attribute, and in its "
            f"config. Received: the model {model.name!r}."
        )
    return copy


def layer_pairs(model, copy):
    """Yields each layer of a model, however deep, and the same of a copy."""
    yield model, copy
    for layer, places in layer_places(model).values():
        new = layer_at(copy, places[0])
        if new is not None:
            yield layer, new


def _check_graph(model):
    """Raises if a graph reads a variable, which Keras makes a constant of."""
    for operation in getattr(model, "operations", ()):
        for node in operation._inbound_nodes:
            arguments = node.arguments.args, node.arguments.kwargs
            for value in keras.tree.flatten(arguments):
                if isinstance(value, keras.Variable):
                    raise ValueError(
                        f"its graph reads the variable {value.path!r}. Read it "
                        "in a layer that has the variable's layer as an "
                        "attribute, and in its config."
                    )


def _tie_layers(model, copy):
    """Makes one layer of those that are one in the model."""
    for _, places in layer_places(model).values():
        first, *others = [layer_at(copy, place) for place in places]
        others = [x for x in others if x is not first and x is not None]
        exchange_layers(copy, [(other, first) for other in others])


def _take_over(layer, new, float32):
    """Gives the layer of a copy what the config does not tell of it."""
    if new.name != layer.name:
        new.name = layer.name
    mode = getattr(layer, "quantization_mode", None)
    policy = layer.dtype_policy
    if not float32 and new.dtype_policy != policy:
        if isinstance(new.dtype_policy, keras.dtype_policies.DTypePolicyMap):
            # Keras puts what is set into the map, which other layers share,
            # and takes the names of what is in maps away when it saves them.
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
    """Copies what files keep of a layer, but for its config."""
    store = {}
    layer.save_own_variables(store)
    if not type(new).load_own_variables.__module__.startswith("keras."):
        # Keras's own take variables, which share memory until one changes.
        to_array = keras.ops.convert_to_numpy
        store = {name: to_array(x) for name, x in store.items()}
    new.load_own_variables(store)
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            new.load_assets(folder)
    if isinstance(layer, keras.layers.RNN) and layer.stateful:
        # Variables that Keras does not track.
        states = map(keras.tree.flatten, (layer.states, new.states))
        for state, other in zip(*states, strict=True):
            other.assign(state)


@contextlib.contextmanager
def _saying_why(model, layer):
    """Says which layer it is that cannot be copied, and what to do."""
    try:
        yield
    except Exception as error:
        # Whatever the user's own classes raise. Keras wraps it more than once.
        reason = error
        while reason.__context__ and "when calling" not in str(reason)[:40]:
            reason = reason.__context__
        text = on_one_line(reason)[:500]
        if "keys and values cannot be empty" in text:
            text = (
                "it has no vocabulary. Call its `adapt` or `set_vocabulary`; "
                "`clone_model` and `from_config` leave words out."
            )
        is_shape = text.startswith("The shape of the target variable")
        for part in all_layers(model):
            name = type(part).__name__
            if text.startswith((f"Object {name} ", f"{name}.__init__() miss")):
                layer, text = part, _lines_to_add(type(part))
            elif is_shape and _has_arguments_alone(type(part)):
                # Of models, Keras keeps the defaults, not what was given.
                layer, text = part, _lines_to_add(type(part))
        paths = {id(x): path for path, x in layer_paths(model).items()}
        raise ValueError(
            f"The layer {paths[id(layer)]!r} ({type(layer).__name__}) cannot "
            f"be copied: {text}"
        ) from error


def _has_arguments_alone(cls):
    """Whether a class has arguments, and no config that tells of them."""
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
    """What to say of a class that Keras cannot make again."""
    names = _arguments(cls)
    pairs = "".join(f', "{name}": self.{name}' for name in names)
    return (
        "its class must have a `get_config` with the arguments of its "
        "constructor, and a `from_config` where one of them is a layer:\n\n"
        "    def get_config(self):\n"
        "        config = super().get_config()\n"
        f"        return {{**config{pairs}}}\n"
    )


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
