"""What work depends on, in a form that is the same in another process."""

import hashlib
import json

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.version import __version__

_CHUNK_BYTES = 1 << 24


def digest(kind, settings, arrays):
    """Hexadecimal digits that tell work from other work.

    Args:
        kind: String, what work it is.
        settings: What it depends on that JSON can hold.
        arrays: List of arrays that it depends on, and of None. They may be
            memory-mapped.
    """
    found = hashlib.blake2b(digest_size=16)
    text = json.dumps([__version__, kind, settings], sort_keys=True)
    found.update(text.encode())
    for array in arrays:
        if array is None:
            found.update(b"none")
            continue
        array = np.asanyarray(array)
        found.update(f"{array.shape} {array.dtype.str}".encode())
        for part in _parts(np.atleast_1d(array)):
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


def without_names(config):
    """A config without names of objects, which Keras numbers in a process."""
    if isinstance(config, dict):
        # Alone, it is what the object is, such as a dtype policy.
        return {
            key: without_names(value)
            for key, value in config.items()
            if key != "name" or len(config) == 1
        }
    if isinstance(config, list | tuple):
        return [without_names(value) for value in config]
    return config


def arrays_of(data):
    """Arrays that stand for data as `fit` takes them.

    Args:
        data: Tuple of structures of arrays, a batched `tf.data.Dataset`, which
            is read once, or None.

    Returns:
        List of arrays. Of a dataset, one that is the same in any order of its
        examples.

    Raises:
        TypeError: if a dataset has no end.
    """
    if not isinstance(data, tf.data.Dataset):
        parts = keras.tree.flatten(data)
        return [part if part is None else np.asarray(part) for part in parts]
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise TypeError("a dataset without an end")
    total = np.zeros(2, "uint64")
    for batch in data:
        parts = map(np.asarray, keras.tree.flatten(batch))
        for example in zip(*parts, strict=True):
            text = digest("example", None, example)
            total += np.frombuffer(bytes.fromhex(text), "uint64")
    return [total]
