"""Replacement of layers inside other layers.

Layers with a config that does not record it are saved as `ExchangedLayers`.
"""

import copy
import functools
import importlib
import types

import keras

from keras_compembed.utils.model_parts import all_layers

# An attribute with the replaced layers, for saving.
KEPT_LAYERS = "_exchanged_layers"
# Attributes that only list layers of other attributes.
_NOTES = frozenset(
    (
        KEPT_LAYERS,
        "_functional",
        "_inbound_nodes",
        "_layers",
        "_operations",
        "_operations_by_depth",
        "_outbound_nodes",
        "_self_unconditional_checkpoint_dependencies",
        "_self_unconditional_deferred_dependencies",
        "_self_unconditional_dependency_names",
    )
)
_KEY = "exchanged_layers"


def held_layers(layer):
    """Yields the place and layer of each layer that a layer holds."""
    for name, value in list(vars(layer).items()):
        if name not in _NOTES:
            yield from _layers_in(value, (name,))
    if isinstance(layer, keras.Sequential) or hasattr(layer, "operations"):
        yield from _layers_in(layer.layers, ("layers",))


def layer_places(root):
    """The places of all layers in a layer, at any depth."""
    found = {}

    def search(layer, place):
        for step, inner in held_layers(layer):
            known = id(inner) in found
            found.setdefault(id(inner), (inner, []))[1].append(place + step)
            if not known and inner is not root:
                search(inner, place + step)

    search(root, ())
    return found


def layer_at(root, place):
    """The layer at a place, or None if there is none."""
    found = root
    for step in place:
        try:
            if isinstance(found, keras.layers.Layer):
                found = getattr(found, step)
            else:
                found = found[step]
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
    return found if isinstance(found, keras.layers.Layer) else None


def describe_place(place):
    """A place as text, e.g. `"layers[1].tables.few[0]"`."""
    text = ""
    for step in place:
        dotted = isinstance(step, str) and step.isidentifier()
        text += f".{step}" if dotted else f"[{step!r}]"
    return text[1:] if text.startswith(".") else text


def exchange_layers(root, exchanges):
    """Replaces layers at all their places, at any depth."""
    exchanges = {
        id(old): (old, new) for old, new in exchanges if old is not new
    }
    if not exchanges:
        return
    holders = [root, *(layer for layer, _ in layer_places(root).values())]
    moved = [_take_over_nodes(old, new) for old, new in exchanges.values()]
    # The graphs inside Sequential models.
    graphs = [vars(holder).get("_functional") for holder in holders]
    for holder in [*holders, *filter(None, graphs)]:
        if id(holder) not in exchanges:
            _exchange_in(holder, exchanges)
            _rename_nodes(holder, moved)


def refresh_shapes(model, news):
    """Updates the tensor shapes of a model behind new layers."""
    news, changed, again = set(map(id, news)), set(), True
    while again:
        again = False
        for operation in getattr(model, "operations", None) or model.layers:
            is_layer = isinstance(operation, keras.layers.Layer)
            inner = all_layers(operation) if is_layer else [operation]
            is_new = any(id(x) in news for x in inner)
            for node in operation._inbound_nodes:
                inputs = node.input_tensors
                if not inputs or not (
                    is_new or any(id(x) in changed for x in inputs)
                ):
                    continue
                args, kwargs = node.arguments.args, node.arguments.kwargs
                made = operation.compute_output_spec(*args, **kwargs)
                made = keras.tree.flatten(made)
                for tensor, spec in zip(node.outputs, made, strict=True):
                    if tensor.shape != spec.shape:
                        tensor._shape = spec.shape
                        changed.add(id(tensor))
                        again = True


def _layers_in(value, place):
    if isinstance(value, keras.layers.Layer):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _layers_in(item, (*place, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _layers_in(item, (*place, index))


def _exchange_in(holder, exchanges):
    tracker = holder._tracker
    for old, new in exchanges.values():
        # At the same index: the order of layers is that of saved weights.
        if tracker.is_in_store("layers", old):
            tracker.replace_tracked_value("layers", old, new)
    locked = tracker.locked
    tracker.unlock()
    try:
        for name, value in list(vars(holder).items()):
            made = _exchanged(value, exchanges)
            if made is not value:
                # By `setattr`, for TensorFlow's checkpoints.
                setattr(holder, name, made)
    finally:
        tracker.locked = locked


def _exchanged(value, exchanges):
    """A value with layers replaced; the same value if there are none."""
    if isinstance(value, keras.Operation):
        return exchanges[id(value)][1] if id(value) in exchanges else value
    if isinstance(value, dict):
        for key, item in list(value.items()):
            made = _exchanged(item, exchanges)
            if made is not item:
                value[key] = made
    elif isinstance(value, (list, tuple)):
        made = [_exchanged(item, exchanges) for item in value]
        if all(a is b for a, b in zip(made, value, strict=True)):
            return value
        if isinstance(value, list):
            # TensorFlow does not save lists with replaced items.
            return made
        # `__class__`, as TensorFlow wraps tuples.
        cls = value.__class__
        return cls(*made) if hasattr(value, "_fields") else cls(made)
    return value


def _rename_nodes(model, moved):
    """Updates node keys of a graph: layer `id` and number."""
    nodes = vars(model).get("_nodes")
    if not isinstance(nodes, set):
        return
    for old, new, first in moved:
        for number in range(len(old._inbound_nodes)):
            key = f"{id(old)}_ib-{number}"
            if key in nodes:
                nodes.remove(key)
                nodes.add(f"{id(new)}_ib-{first + number}")


def _take_over_nodes(old, new):
    """Moves all graph calls of an old layer to the new one."""
    first = len(new._inbound_nodes)
    for number, node in enumerate(old._inbound_nodes):
        node.operation = new
        for tensor in node.outputs:
            if hasattr(tensor, "_keras_history"):
                tensor._keras_history = tensor._keras_history._replace(
                    operation=new, node_index=first + number
                )
    new._inbound_nodes.extend(old._inbound_nodes)
    return old, new, first


@keras.saving.register_keras_serializable(package="keras_compembed")
class ExchangedLayers:
    """Mixin for layers that create inner layers themselves."""

    def get_config(self):
        cls = own_class(self)
        config = super().get_config()
        return {
            # Keras makes automatic configs, but not for subclasses with a
            # `get_config`.
            **{
                name: config.get(name, value)
                for name, value in vars(self)["_own_config"].items()
            },
            _KEY: {
                "class": {
                    "module": _module(cls),
                    "class_name": cls.__name__,
                    "registered_name": keras.saving.get_registered_name(cls),
                },
                "build_config": self.get_build_config(),
                "layers": [
                    {
                        "places": [list(place) for place in places],
                        "layer": _serialize(layer_at(self, places[0])),
                    }
                    for places in vars(self)["_exchanged_places"]
                ],
            },
        }

    def __reduce__(self):
        load, arguments = super().__reduce__()
        # Pickle cannot find this class by its name.
        return types.MethodType(load.__func__, keras.layers.Layer), arguments

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        exchanged = config.pop(_KEY, None)
        if cls is ExchangedLayers:
            cls = with_exchanged(_find_class(**exchanged["class"]))
        own_config = copy.deepcopy(config)
        layer = super().from_config(config)
        if not isinstance(layer, ExchangedLayers):
            raise TypeError(
                f"`from_config` of {cls.__name__} must return `cls(...)`."
            )
        vars(layer)["_own_config"] = own_config
        vars(layer)["_exchanged_places"] = []
        if exchanged is not None:
            _put_layers(layer, exchanged)
        return layer


def _put_layers(layer, exchanged):
    """Puts the layers of a config into a layer."""
    every = [
        (
            [tuple(place) for place in each["places"]],
            keras.saving.deserialize_keras_object(each["layer"]),
        )
        for each in exchanged["layers"]
    ]
    places = [place for places, _ in every for place in places]
    if exchanged["build_config"] and not layer.built:
        if any(layer_at(layer, place) is None for place in places):
            layer.build_from_config(exchanged["build_config"])
            layer.built = True
    for place in places:
        if layer_at(layer, place) is None:
            raise ValueError(
                f"{type(layer).__name__} must have a layer at "
                f"{describe_place(place)}, as in the saved model. "
                f"Received: layer={layer.name!r}, without it."
            )
    exchange_layers(
        layer,
        [(layer_at(layer, x), new) for places, new in every for x in places],
    )
    remember_exchanges(layer, [places for places, _ in every])


def remember_exchanges(layer, places):
    """Records the layers at some places in a layer's config."""
    now = {place for each in places for place in each}
    before = [
        each
        for each in vars(layer)["_exchanged_places"]
        if not now.intersection(each)
    ]
    places = [*before, *places]
    # `vars`, to avoid Keras's tracking.
    vars(layer)["_exchanged_places"] = places
    # Before 3.15, Keras does not save layers in nested lists.
    vars(layer)[KEPT_LAYERS] = [layer_at(layer, each[0]) for each in places]


def _serialize(layer):
    # Serialized twice, the layer gets an id: Keras then loads one shared layer.
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)


def _module(cls):
    # In the form of Keras.
    return None if cls.__module__ == "__main__" else cls.__module__


def _find_class(module, class_name, registered_name):
    """The class in a config; Keras imports its own and keras-hub's."""
    cls = keras.saving.get_registered_object(registered_name)
    if cls is None and (module or "").split(".")[0] in ("keras", "keras_hub"):
        cls = vars(importlib.import_module(module)).get(class_name)
    if not isinstance(cls, type) or not issubclass(cls, keras.Operation):
        raise TypeError(
            f"The class {registered_name!r} must be imported before the file "
            "is loaded, and be registered with "
            "`@keras.saving.register_keras_serializable()`."
        )
    return cls


def own_class(layer):
    """The original class of a layer, from its module."""
    cls = type(layer)
    return cls.__bases__[1] if ExchangedLayers in cls.__bases__ else cls


@functools.cache
def with_exchanged(cls):
    """A subclass with configs that record replaced layers."""
    made = type(cls)(
        cls.__name__,
        (ExchangedLayers, cls),
        {"__module__": __name__, "__doc__": cls.__doc__},
    )
    register = keras.saving.register_keras_serializable(
        package="keras_compembed", name=ExchangedLayers.__name__
    )
    register(made)
    # Keras then saves and finds the new class under this name.
    register(ExchangedLayers)
    return made
