"""Copies of models with other layers in the place of some."""

import collections

import keras

from keras_compembed.exchange.exchange_layers import ExchangedLayers
from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.exchange_layers import held_layers
from keras_compembed.exchange.exchange_layers import layer_places
from keras_compembed.exchange.exchange_layers import refresh_shapes
from keras_compembed.exchange.exchange_layers import remember_exchanges
from keras_compembed.exchange.exchange_layers import with_exchanged
from keras_compembed.exchange.model_copy import copy_model
from keras_compembed.exchange.model_copy import dicts_in
from keras_compembed.exchange.model_copy import layer_pairs
from keras_compembed.exchange.model_copy import start_with_zeros
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import layer_paths


def copy_with(model, exchanges, check=None):
    """A copy of a model, not compiled, with others for some of its layers.

    `exchanges` are pairs of a layer, or an operation of a graph, and another.
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
                f"The layer {paths[id(old)]!r} cannot be exchanged: no "
                "attribute holds it, nor a list, tuple or dict of one. "
                "Hold it there, or name the other layers in `layers`."
            )
    news = [new for _, new in exchanges]
    exchange_layers(copy, zip(replaced, news, strict=True))
    for old, new in exchanges:
        if isinstance(new, keras.layers.Layer):
            new.trainable = old.trainable
        for node in new._inbound_nodes:
            # What takes the place of a pooling takes none.
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
    """The layer or operation of a copy that is one of the model."""
    if id(old) in same:
        return same[id(old)]
    for graph, new in pairs:
        for operation in getattr(graph, "operations", ()):
            if operation is old:
                return next(x for x in new.operations if x.name == old.name)
    return None


class _Holders:
    """Finds layers whose configs do not tell what is exchanged in them."""

    def __init__(self, model, layers):
        self._model = model
        self._wanted = {id(layer) for layer in layers}
        self._inner = {}
        counts = collections.Counter()
        for holder in layer_paths(model).values():
            counts.update({id(x) for _, x in held_layers(holder)})
        # Keras loses some of these where the first holder is not the model.
        self._shared = {key for key, count in counts.items() if count > 1}
        self.places = []

    def mark(self, config):
        """Lets the config of a model name other classes for them."""
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
                # Merged when weights are saved.
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
    """Whether a dict of a config is that of a layer."""
    config = part.get("config")
    return (
        part.get("class_name") == type(layer).__name__
        and isinstance(config, dict)
        # Configs that Keras makes up may have none.
        and config.get("name", layer.name) == layer.name
    )
