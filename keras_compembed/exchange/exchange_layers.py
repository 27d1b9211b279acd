"""Layers inside layers: where they are held, and others put there.

Layers whose class knows nothing of that are saved as `ExchangedLayers`.
"""

import copy
import functools
import importlib
import types

import keras

from keras_compembed.utils.model_parts import all_layers

# An attribute that holds what was exchanged once more, for files.
KEPT_LAYERS = "_exchanged_layers"
# Where that, Keras and TensorFlow note what other attributes hold.
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
    """Yields each layer that a layer holds, after the place that holds it."""
    for name, value in list(vars(layer).items()):
        if name not in _NOTES:
            yield from _layers_in(value, (name,))
    if isinstance(layer, keras.Sequential) or hasattr(layer, "operations"):
        yield from _layers_in(layer.layers, ("layers",))


def layer_places(root):
    """The places of all layers in a layer, however deep."""
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
    """Puts other layers at all places of some layers, however deep."""
    exchanges = {
        id(old): (old, new) for old, new in exchanges if old is not new
    }
    if not exchanges:
        return
    holders = [root, *(layer for layer, _ in layer_places(root).values())]
    moved = [_take_over_nodes(old, new) for old, new in exchanges.values()]
    # The graphs that Sequential models make of their layers.
    graphs = [vars(holder).get("_functional") for holder in holders]
    for holder in [*holders, *filter(None, graphs)]:
        if id(holder) not in exchanges:
            _exchange_in(holder, exchanges)
            _rename_nodes(holder, moved)


def refresh_shapes(model, news):
    """Tells the tensors of a model their shapes behind new layers."""
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
        # In its place: weights are saved and loaded in the order of layers.
        if tracker.is_in_store("layers", old):
            tracker.replace_tracked_value("layers", old, new)
    locked = tracker.locked
    tracker.unlock()
    try:
        for name, value in list(vars(holder).items()):
            made = _exchanged(value, exchanges)
            if made is not value:
                # Not past `setattr`: TensorFlow's checkpoints follow it.
                setattr(holder, name, made)
    finally:
        tracker.locked = locked


def _exchanged(value, exchanges):
    """A value with layers in it exchanged; the same value if none is."""
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
            # TensorFlow saves no list of which an item was replaced.
            return made
        # Not `type`: TensorFlow wraps tuples.
        cls = value.__class__
        return cls(*made) if hasattr(value, "_fields") else cls(made)
    return value


def _rename_nodes(model, moved):
    """A graph knows its nodes by the `id` of the layer and a number."""
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
    """Makes a new layer the one of all calls of the old in graphs."""
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
    """Mixed into the class of a layer that makes layers by itself."""

    def get_config(self):
        cls = own_class(self)
        config = super().get_config()
        return {
            # Keras makes up configs for classes without one, but not for a
            # subclass that has one.
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
        # Pickles find classes by their modules and names, and not this one.
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
                f"{type(layer).__name__} must hold a layer at "
                f"{describe_place(place)}, as when it was saved. "
                f"Received: the layer {layer.name!r}, without one."
            )
    exchange_layers(
        layer,
        [(layer_at(layer, x), new) for places, new in every for x in places],
    )
    remember_exchanges(layer, [places for places, _ in every])


def remember_exchanges(layer, places):
    """Makes the config of a layer tell which layers are at some places."""
    now = {place for each in places for place in each}
    before = [
        each
        for each in vars(layer)["_exchanged_places"]
        if not now.intersection(each)
    ]
    places = [*before, *places]
    # Past Keras's tracking.
    vars(layer)["_exchanged_places"] = places
    # Before 3.15, Keras leaves what is in lists in lists out of files.
    vars(layer)[KEPT_LAYERS] = [layer_at(layer, each[0]) for each in places]


def _serialize(layer):
    # Seen for the second time while a file is written, it gets an id, by
    # which Keras finds the one layer that several hold.
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)


def _module(cls):
    # As Keras writes it.
    return None if cls.__module__ == "__main__" else cls.__module__


def _find_class(module, class_name, registered_name):
    """A class of a config; Keras imports its own and those of keras-hub."""
    cls = keras.saving.get_registered_object(registered_name)
    if cls is None and (module or "").split(".")[0] in ("keras", "keras_hub"):
        cls = vars(importlib.import_module(module)).get(class_name)
    if not isinstance(cls, type) or not issubclass(cls, keras.Operation):
        raise TypeError(
            f"The class {registered_name!r} must be imported before the file "
            "is loaded, and be registered with Keras by "
            "`@keras.saving.register_keras_serializable()`."
        )
    return cls


def own_class(layer):
    """The class of a layer as its module has it."""
    cls = type(layer)
    return cls.__bases__[1] if ExchangedLayers in cls.__bases__ else cls


@functools.cache
def with_exchanged(cls):
    """A subclass whose configs tell what was exchanged."""
    made = type(cls)(
        cls.__name__,
        (ExchangedLayers, cls),
        {"__module__": __name__, "__doc__": cls.__doc__},
    )
    register = keras.saving.register_keras_serializable(
        package="keras_compembed", name=ExchangedLayers.__name__
    )
    register(made)
    # Keras then finds the class here by the name, and writes that name for
    # objects of the class made.
    register(ExchangedLayers)
    return made
