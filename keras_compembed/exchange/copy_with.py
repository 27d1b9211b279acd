"""Copies of models with replaced layers, compiled like the models."""

import collections
import re
import warnings

import keras

from keras_compembed.exchange.exchange_layers import ExchangedLayers
from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.exchange_layers import held_layers
from keras_compembed.exchange.exchange_layers import layer_places
from keras_compembed.exchange.exchange_layers import refresh_shapes
from keras_compembed.exchange.exchange_layers import remember_exchanges
from keras_compembed.exchange.exchange_layers import with_exchanged
from keras_compembed.exchange.model_copy import copy_model
from keras_compembed.exchange.model_copy import custom_objects
from keras_compembed.exchange.model_copy import dicts_in
from keras_compembed.exchange.model_copy import held_objects
from keras_compembed.exchange.model_copy import layer_pairs
from keras_compembed.exchange.model_copy import start_with_zeros
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.validation import on_one_line

_PLAIN = (bool, float, int, str, type(None))


def copy_with(model, exchanges, check=None):
    """An uncompiled copy of a model with some layers replaced.

    `exchanges` are pairs of an old and a new layer or graph operation.
    """
    layers = [x for x, _ in exchanges if isinstance(x, keras.layers.Layer)]
    holders = _Holders(model, layers)
    unused = layers if check is None else ()
    copy = copy_model(model, mark=holders.mark, without=unused)
    if check is not None:
        check.compare(copy)
    pairs = list(layer_pairs(model, copy))
    same = {id(old): new for old, new in pairs}
    replaced = [_find(old, pairs, same) for old, _ in exchanges]
    for (old, _), there in zip(exchanges, replaced, strict=True):
        if there is None:
            paths = {id(x): path for path, x in layer_paths(model).items()}
            raise ValueError(
                f"The layer {paths[id(old)]!r} cannot be replaced: make it an "
                "attribute of its parent, or an item of a list, tuple or dict "
                "there, or name only other layers in `layers`."
            )
    news = [new for _, new in exchanges]
    exchange_layers(copy, zip(replaced, news, strict=True))
    for old, new in exchanges:
        if isinstance(new, keras.layers.Layer):
            new.trainable = old.trainable
        for node in new._inbound_nodes:
            # The replacement of a pooling takes no mask.
            options = dict(node.arguments.kwargs)
            if "mask" in options:
                del options["mask"]
                made = type(node.arguments)(*node.arguments.args, **options)
                node.arguments = made
    for holder, places in holders.places:
        remember_exchanges(same[id(holder)], places)
    if check is not None:
        check.check_reads(copy, exchanges, replaced)
    for graph in [*(new for _, new in reversed(pairs[1:])), copy]:
        if is_open(graph):
            refresh_shapes(graph, news)
    return copy


def _find(old, pairs, same):
    """The layer or operation of a copy for one of the model."""
    if id(old) in same:
        return same[id(old)]
    for graph, new in pairs:
        for operation in getattr(graph, "operations", ()):
            if operation is old:
                return next(x for x in new.operations if x.name == old.name)
    return None


class _Holders:
    """Finds layers with configs that do not record replaced layers."""

    def __init__(self, model, layers):
        self._model = model
        self._wanted = {id(layer) for layer in layers}
        self._inner = {}
        counts = collections.Counter()
        for holder in layer_paths(model).values():
            counts.update({id(x) for _, x in held_layers(holder)})
        # Keras loses some of them if the first holder is not the model.
        self._shared = {key for key, count in counts.items() if count > 1}
        self.places = []

    def mark(self, config):
        """Replaces the classes of these layers in the config."""
        if id(self._model) not in self._wanted:
            self._search(self._model, config.config, config)

    def _search(self, holder, part, config):
        parts = list(dicts_in(part["config"]))
        is_graph = type(holder) in (keras.Model, keras.Sequential) or (
            type(holder).__module__.startswith("keras.")
            and hasattr(holder, "operations")
        )
        places, told = {}, {}
        for step, layer in held_layers(holder):
            inner = self._wanted_in(layer)
            if not inner:
                continue
            of_layer = next((x for x in parts if _is_of(x, layer)), None)
            if of_layer and (is_graph or id(layer) not in self._shared):
                told[id(layer)] = layer, of_layer
                continue
            for key, more in inner.items():
                every = places.setdefault(key, [])
                every += [step + place for place in more]
        for layer, of_layer in told.values():
            if id(layer) not in self._wanted:
                self._search(layer, of_layer, config)
            else:
                # LoRA is merged when weights are saved.
                of_layer["config"].pop("lora_rank", None)
                start_with_zeros(of_layer)
        if places:
            self.places.append((holder, list(places.values())))
            if not isinstance(holder, ExchangedLayers):
                made = with_exchanged(type(holder))
                part["registered_name"] = config.add("exchanged", made)

    def _wanted_in(self, layer):
        """Places in a layer of those wanted, by `id`; its own is empty."""
        if id(layer) not in self._inner:
            inner = {
                id(x): places for x, places in layer_places(layer).values()
            }
            inner[id(layer)] = [()]
            self._inner[id(layer)] = {
                key: places
                for key, places in inner.items()
                if key in self._wanted
            }
        return self._inner[id(layer)]


def _is_of(part, layer):
    """Whether a config dict is that of a layer."""
    config = part.get("config")
    return (
        part.get("class_name") == type(layer).__name__
        and isinstance(config, dict)
        # Automatic configs of Keras may have no name.
        and config.get("name", layer.name) == layer.name
    )


def compile_like(copy, model, compile=None):
    """Compiles a copy with the compile arguments of the model."""
    if compile is not None:
        compile(copy)
        return
    if not model.compiled:
        return
    try:
        with warnings.catch_warnings():
            # E.g. for layers that XLA cannot compile.
            warnings.simplefilter("ignore")
            _compile(copy, model)
    except Exception as error:
        # User classes may raise any error.
        reason = on_one_line(error)
        warnings.warn(
            "The copy is not compiled, as the model's compile arguments cannot "
            f"be copied: {reason[:300]} Call `compile` on the copy.",
            stacklevel=3,
        )


def _compile(copy, model):
    if type(model).compile is not keras.Model.compile:
        # A constructor may have compiled it differently.
        copy.compiled = False
        copy.compile_from_config(model.get_compile_config())
        if not copy.compiled:
            raise ValueError(
                f"{type(model).__name__} overrides `compile` without "
                "`compile_from_config`."
            )
        return
    # Not `get_compile_config`, which cannot restore functions that are not
    # registered with Keras.
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
        # Keras cannot load files with an optimizer that is not built.
        copy.optimizer.build(copy.trainable_variables)


def _check_reads_nothing_of(model, arguments):
    own = {id(layer) for layer in all_layers(model)}
    own.update(id(variable) for variable in model.variables)
    for name in ("loss", "metrics", "weighted_metrics"):
        for item in held_objects(arguments[name]):
            if id(item) in own:
                raise ValueError(
                    f"`{name}` reads {item.name!r} of the original model."
                )


def _made_again(item):
    """A new optimizer or metric of the same class and config."""
    if item is None:
        return None
    with keras.utils.custom_object_scope(custom_objects(item)):
        new = type(item).from_config(item.get_config())
    for name, value in vars(item).items():
        if name == "built" or name.startswith("_"):
            continue
        if isinstance(value, _PLAIN) and getattr(new, name, None) != value:
            raise ValueError(
                f"the config of {type(item).__name__} lacks "
                f"{name}={value!r}; implement its `get_config`."
            )
    return new


def _exclude_same(new, optimizer, variables):
    """Copies the weight-decay exclusions, which are in no config."""
    for names in vars(optimizer).values():
        if isinstance(names, re.Pattern):
            new.exclude_from_weight_decay(var_names=[names.pattern])
    for x in variables:
        if optimizer._use_weight_decay(x) != new._use_weight_decay(x):
            raise ValueError(
                "its optimizer excludes variables of the original model from "
                "weight decay. Use `var_names` instead."
            )
    for name, inner in vars(optimizer).items():
        if isinstance(inner, keras.optimizers.Optimizer):
            _exclude_same(getattr(new, name), inner, variables)
