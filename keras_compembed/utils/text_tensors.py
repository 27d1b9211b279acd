"""Texts in the form that Keras trains on."""

import keras
import numpy as np
import tensorflow as tf


def with_text_tensors(data):
    """Data with texts as tensors; then also arrays, as layers take no mix."""
    found = _with_texts(data)
    parts = keras.tree.flatten(found)
    if not any(getattr(x, "dtype", None) == tf.string for x in parts):
        return found
    return keras.tree.map_structure(
        lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, found
    )


def _with_texts(data):
    if isinstance(data, dict):
        return {name: _with_texts(each) for name, each in data.items()}
    if isinstance(data, (tuple, list)):
        if data and _are_texts(data):
            return tf.constant(data)
        if type(data) in (tuple, list):
            return type(data)(map(_with_texts, data))
    if isinstance(data, np.ndarray) and data.dtype.kind in "OSU":
        if data.dtype.kind != "O" or _are_texts(data.ravel()):
            return tf.constant(data)
    return data


def _are_texts(items):
    return all(isinstance(item, (str, bytes)) for item in items)
