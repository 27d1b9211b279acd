"""Saves layers whose class knows nothing of what was exchanged in them."""

import copy
import functools
import importlib
import types

import keras

from keras_compembed.exchange.exchange_layers import KEPT_LAYERS
from keras_compembed.exchange.exchange_layers import describe_place
from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.exchange_layers import layer_at

_KEY = "exchanged_layers"


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
