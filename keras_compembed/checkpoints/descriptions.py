"""What work depends on, in a form that is the same in another process."""

import hashlib

import keras
import numpy as np
import tensorflow as tf


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
    total = np.zeros(4, "uint64")
    for batch in data:
        for example in zip(
            *map(np.asarray, keras.tree.flatten(batch)), strict=True
        ):
            total += _digest_of(example)
    return [total]


def _digest_of(example):
    digest = hashlib.blake2b(digest_size=32)
    for part in example:
        part = np.asarray(part)
        digest.update(f"{part.shape} {part.dtype.str}".encode())
        strings = part.dtype == object
        digest.update(
            repr(part.tolist()).encode() if strings else part.tobytes()
        )
    return np.frombuffer(digest.digest(), "uint64")
