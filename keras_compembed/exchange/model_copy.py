"""Copies of models, as Keras saves and loads them, without a file."""

import contextlib
import inspect
import tempfile
import warnings

import keras

from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.exchange_layers import layer_at
from keras_compembed.exchange.exchange_layers import layer_places
from keras_compembed.exchange.model_config import ModelConfig
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.validation import on_one_line


def copy_model(model, float32=False, mark=None, without=()):
    """A copy of a model or layer, not compiled, by its config and weights.

    With `float32`, it computes in that, from such variables. `mark` is a
    function that changes the `ModelConfig`; layers in `without` get no weights.
    """
    for layer in model._flatten_layers():
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
        is_shape = text.startswith("The shape of the target variable")
        for part in model._flatten_layers():
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
