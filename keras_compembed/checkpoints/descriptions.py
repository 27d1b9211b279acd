"""What work depends on, in a form that is the same in another process."""

import hashlib
import json

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.table_shards import TableShards
from keras_compembed.version import __version__

_CHUNK_BYTES = 1 << 24
_OWN = ("keras", "keras_compembed", "builtins")


def digest(kind, settings, arrays):
    """Hexadecimal digits that tell work from other work."""
    found = hashlib.blake2b(digest_size=16)
    text = json.dumps([__version__, kind, settings], sort_keys=True)
    found.update(text.encode())
    for array in arrays:
        if array is None:
            found.update(b"none")
            continue
        if not isinstance(array, TableShards):
            array = np.asanyarray(array)
        found.update(f"{array.shape} {array.dtype.str}".encode())
        for part in _parts(array if array.ndim else array[None]):
            found.update(part)
    return found.hexdigest()


def _parts(array):
    """Bytes of some rows at a time, of a table that memory may not hold."""
    if array.dtype == object:
        for item in array.flat:
            text = item if isinstance(item, bytes) else str(item).encode()
            yield len(text).to_bytes(8, "little") + text
        return
    rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        part = np.ascontiguousarray(array[start : start + rows])
        yield part.view("uint8").reshape(-1).data


def without_names(config, names=()):
    """A config without names of objects, which Keras numbers in a process."""
    if isinstance(config, dict):
        # Alone, it is what the object is, such as a dtype policy.
        return {
            key: without_names(value, names)
            for key, value in config.items()
            if key != "name" or len(config) == 1
        }
    if isinstance(config, list | tuple):
        return [without_names(value, names) for value in config]
    if isinstance(config, str) and config in names:
        return f"object {names.index(config)}"
    return config


def class_of(instance):
    """The class of an object, as `check_own` knows it."""
    cls = type(instance)
    return {"module": cls.__module__, "class_name": cls.__qualname__}


def check_own(config):
    """Raises unless all that a config stands for is Keras's, or ours."""
    if isinstance(config, dict):
        module, name = config.get("module"), config.get("class_name")
        if name is not None and name.startswith(("function", "__lambda__")):
            raise TypeError(f"the function {config.get('config')!r}")
        if module is not None and module.split(".")[0] not in _OWN:
            raise TypeError(f"the class {name!r} of {module!r}")
        config = list(config.values())
    if isinstance(config, list | tuple):
        for value in config:
            check_own(value)


def arrays_of(data):
    """Arrays of data as `fit` takes them."""
    if isinstance(data, tf.data.Dataset):
        raise TypeError("a `tf.data.Dataset`; arrays can be")
    parts = keras.tree.flatten(data)
    return [part if part is None else np.asarray(part) for part in parts]
