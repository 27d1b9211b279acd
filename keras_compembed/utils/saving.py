"""What layers and models keep in files, and read from there."""

import base64
import zipfile
import zlib

import keras
import numpy as np

_KEY = "seed_state"


def read_also(*names):
    """Reads a class from files that have it by other names."""

    def register(cls):
        for name in names:
            # Keras finds the weights in a file by the names of classes.
            same = type(name, (cls,), {"__module__": cls.__module__})
            keras.saving.register_keras_serializable("keras_compembed")(same)
        return cls

    return register


class Settings:
    """Base of settings whose attributes are the constructor's arguments."""

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {name: serialize(part) for name, part in vars(self).items()}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def get_settings(cls, identifier):
    """One of a class, of itself, its serialized form or first argument."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    return identifier if isinstance(identifier, cls) else cls(identifier)


def serialize_part(part):
    """The config of a part of a layer, which may be a part of others too."""
    config = keras.saving.serialize_keras_object(part)
    if "shared_object_id" in config:
        return config
    return keras.saving.serialize_keras_object(part)


def pack_array(array):
    """An array as a dict for JSON, compressed."""
    if array is None:
        return None
    array = np.asarray(array)
    array = array.astype(array.dtype.newbyteorder("<"))
    # First bytes of all numbers first: of small ones, most bytes are equal.
    planes = np.frombuffer(array.tobytes(), "uint8")
    planes = planes.reshape(-1, array.dtype.itemsize).T
    # Of higher levels text is hardly shorter.
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
    # Of this machine's order of bytes, and to be written to.
    return array.reshape(packed["shape"]).astype(packed["dtype"])


def save_seed(store, generator):
    """Puts a state into what `save_own_variables` is given."""
    store[_KEY] = generator.state.numpy()


def load_seed(store, generator):
    """Takes the state from what `load_own_variables` is given."""
    arrays = {key: store[key] for key in store.keys()}
    state = arrays.pop(_KEY, None)
    if state is not None:
        generator.state.assign(state)
    return arrays


class PackedConfig:
    """Configs that hold arguments: `_settings`, and `_arrays` packed."""

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
    """Checks the shapes in a file before the first weight is set."""

    def load_own_variables(self, store):
        # Its own come first.
        own = {str(i): each for i, each in enumerate(self.weights)}
        check_shapes(self, store, own)
        super().load_own_variables(store)

    def _add_state(self, name, values, dtype="int32"):
        """A weight that starts as an array and no optimizer changes."""
        return self.add_weight(
            name=name,
            shape=np.shape(values),
            dtype=dtype,
            initializer=lambda shape, dtype: values,
            trainable=False,
            autocast=False,
        )


def check_shapes(layer, store, variables):
    """Raises if a file has arrays of other shapes than a layer."""
    for key, variable in variables.items():
        if key in store.keys() and store[key].shape != variable.shape:
            raise ValueError(
                f"The weights of the layer {layer.name!r} must have its "
                f"shapes, {tuple(variable.shape)} of {variable.path!r}. "
                f"Received: {tuple(store[key].shape)}."
            )


def check_saved_words(path):
    """Raises if Keras reads other words from a file than were saved."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("vocabulary.txt"):
                continue
            for word in archive.read(name).decode().split("\n"):
                if word and word.splitlines() != [word]:
                    raise ValueError(
                        "Vocabularies that Keras reads from a `.keras` file "
                        "must have no words with line ends in them, such as "
                        "U+0085: ids of other words would be others. "
                        f"Received: the word {word!r}. Save a copy of the "
                        "model as it was trained, by `keras_compembed."
                        "compress_model` or `prune_vocabulary`: "
                        "those keep words in another place."
                    )
