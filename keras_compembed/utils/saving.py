"""Configs, states and arrays in saved files."""

import base64
import zipfile
import zlib

import keras
import numpy as np

_KEY = "seed_state"


def read_also(*names):
    """Registers other names of a class, as used in older files."""

    def register(cls):
        for name in names:
            # Keras finds weights in a file by class names.
            same = type(name, (cls,), {"__module__": cls.__module__})
            keras.saving.register_keras_serializable("keras_compembed")(same)
        return cls

    return register


class Settings:
    """Base of settings; attributes equal constructor arguments."""

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {name: serialize(part) for name, part in vars(self).items()}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def get_settings(cls, identifier):
    """An object of `cls`, from itself, its config or its first argument."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    return identifier if isinstance(identifier, cls) else cls(identifier)


def serialize_part(part):
    """The config of a part of a layer; several layers may share it."""
    config = keras.saving.serialize_keras_object(part)
    if "shared_object_id" in config:
        return config
    return keras.saving.serialize_keras_object(part)


def pack_array(array):
    """Packs an array in a JSON dict, compressed."""
    if array is None:
        return None
    array = np.asarray(array)
    array = array.astype(array.dtype.newbyteorder("<"))
    # Group first bytes of all numbers, then second ones: many are equal.
    planes = np.frombuffer(array.tobytes(), "uint8")
    planes = planes.reshape(-1, array.dtype.itemsize).T
    # Higher levels save little.
    packed = zlib.compress(planes.tobytes(), level=1)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": base64.b64encode(packed).decode("ascii"),
    }


def unpack_array(packed):
    """The array that `pack_array` was given."""
    if packed is None:
        return None
    dtype = np.dtype(packed["dtype"]).newbyteorder("<")
    planes = zlib.decompress(base64.b64decode(packed["bytes"]))
    planes = np.frombuffer(planes, "uint8").reshape(dtype.itemsize, -1)
    array = np.frombuffer(planes.T.tobytes(), dtype)
    # A writable copy in native byte order.
    return array.reshape(packed["shape"]).astype(packed["dtype"])


def save_seed(store, generator):
    """Adds a seed to the store of `save_own_variables`."""
    store[_KEY] = generator.state.numpy()


def load_seed(store, generator):
    """Restores a seed from the store of `load_own_variables`."""
    arrays = {key: store[key] for key in store.keys()}
    state = arrays.pop(_KEY, None)
    if state is not None:
        generator.state.assign(state)
    return arrays


class PackedConfig:
    """Configs of arguments: `_settings`, and `_arrays` packed."""

    _settings = ()
    _arrays = ()

    def get_config(self):
        settings = {name: getattr(self, name) for name in self._settings}
        for name in self._arrays:
            settings[name] = pack_array(getattr(self, name))
        return {**super().get_config(), **settings}

    @classmethod
    def from_config(cls, config):
        arrays = {name: unpack_array(config[name]) for name in cls._arrays}
        return super().from_config({**config, **arrays})


class WholeLoad:
    """Checks all shapes in a file before it sets weights."""

    def load_own_variables(self, store):
        # Own weights come first.
        own = {str(i): each for i, each in enumerate(self.weights)}
        check_shapes(self, store, own)
        super().load_own_variables(store)

    def _add_state(self, name, values, dtype="int32"):
        """Adds a non-trainable weight with initial values."""
        return self.add_weight(
            name=name,
            shape=np.shape(values),
            dtype=dtype,
            initializer=lambda shape, dtype: values,
            trainable=False,
            autocast=False,
        )


def check_shapes(layer, store, variables):
    """Raises if arrays in a file do not fit the layer."""
    for key, variable in variables.items():
        if key in store.keys() and store[key].shape != variable.shape:
            raise ValueError(
                f"Saved weights must fit the layer {layer.name!r}: "
                f"{variable.path!r} has the shape {tuple(variable.shape)}. "
                f"Received: {tuple(store[key].shape)}."
            )


def check_saved_words(path):
    """Raises if Keras would read a vocabulary with other ids."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("vocabulary.txt"):
                continue
            for word in archive.read(name).decode().split("\n"):
                if word and word.splitlines() != [word]:
                    raise ValueError(
                        "Vocabularies in a `.keras` file must have no words "
                        "with line ends, such as U+0085: Keras would shift the "
                        f"ids after them. Received: the word {word!r}. "
                        "From the trained model in memory, save a copy by "
                        "`keras_compembed.compress_model` or "
                        "`prune_vocabulary`, which store words in another "
                        "place."
                    )
