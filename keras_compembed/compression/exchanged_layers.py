"""Saves layers whose class knows nothing of what was exchanged in them."""

import functools

import keras

from keras_compembed.compression.made_again import made_again
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
        try:
            # Keras looks whether `get_config` is its default one.
            _set_class(self, cls)
            config = self.get_config()
        finally:
            _set_class(self, _with_exchanged(cls))
        return {
            **config,
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
        _, arguments = super().__reduce__()
        # Pickles find classes by their modules and names, and not this one.
        return _unpickle, (own_class(self), *arguments)

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        exchanged = config.pop(_KEY)
        layer = keras.saving.deserialize_keras_object(
            {**exchanged["class"], "config": config}
        )
        put_layers(
            layer,
            [
                (
                    [tuple(place) for place in each["places"]],
                    keras.saving.deserialize_keras_object(each["layer"]),
                )
                for each in exchanged["layers"]
            ],
            exchanged["build_config"],
        )
        return layer


def put_layers(layer, exchanges, build_config=None):
    """Puts layers at places in a layer and in its config."""
    if build_config and not layer.built:
        if any(
            layer_at(layer, place) is None
            for places, _ in exchanges
            for place in places
        ):
            layer.build_from_config(build_config)
            layer.built = True
    pairs = []
    for places, new in exchanges:
        for place in places:
            old = layer_at(layer, place)
            if old is None:
                raise ValueError(
                    f"{type(layer).__name__} must hold a layer at "
                    f"{describe_place(place)}, as when it was saved. "
                    f"Received: the layer {layer.name!r}, without one."
                )
            pairs.append((old, new))
    exchange_layers(layer, pairs)
    remember_exchanges(layer, exchanges, always=True)


def remember_exchanges(layer, exchanged, always=False):
    """Makes configs tell which layers are at some places in a layer."""
    holders = {}
    for places, new in exchanged:
        for place in places:
            for cut in range(len(place)):
                holder = layer_at(layer, place[:cut])
                if holder is not None:
                    _, held = holders.setdefault(id(holder), (holder, {}))
                    _, known = held.setdefault(id(new), (new, []))
                    if place[cut:] not in known:
                        known.append(place[cut:])
    # From the inside out: outer configs may tell by inner ones.
    for holder, held in reversed(holders.values()):
        forced = always and holder is layer
        try:
            tells = not forced and _config_tells(holder, held.values())
        except Exception:
            if holder is layer:
                raise
            # Its class has no config: what holds it makes it.
            continue
        if not tells:
            _remember(holder, [places for _, places in held.values()])


def _config_tells(layer, held):
    """Whether a layer made again by its config holds what this one holds."""
    if isinstance(layer, ExchangedLayers):
        return False
    text = repr(layer.get_config())
    if any(type(new).__name__ not in text for new, _ in held):
        return False
    again = made_again(layer)
    for new, places in held:
        for place in places:
            there = layer_at(again, place)
            if type(there) is not type(new) or there.name != new.name:
                return False
    return True


def _unpickle(cls, file):
    return cls._unpickle_model(file)


def _remember(layer, places):
    now = {place for each in places for place in each}
    before = [
        each
        for each in vars(layer).get("_exchanged_places", ())
        if not now.intersection(each)
    ]
    places = [*before, *places]
    # Past Keras's tracking.
    vars(layer)["_exchanged_places"] = places
    # Before 3.15, Keras leaves what is in lists in lists out of files.
    vars(layer)[KEPT_LAYERS] = [layer_at(layer, each[0]) for each in places]
    _set_class(layer, _with_exchanged(own_class(layer)))


def _serialize(layer):
    # Seen for the second time while a file is written, it gets an id, by
    # which Keras finds the one layer that several hold.
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)


def _module(cls):
    # As Keras writes it.
    return None if cls.__module__ == "__main__" else cls.__module__


def own_class(layer):
    """The class of a layer as its module has it."""
    cls = type(layer)
    return cls.__bases__[1] if ExchangedLayers in cls.__bases__ else cls


@functools.cache
def _with_exchanged(cls):
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


def _set_class(layer, cls):
    object.__setattr__(layer, "__class__", cls)
