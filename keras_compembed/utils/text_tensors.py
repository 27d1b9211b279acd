"""Texts in the form that Keras trains on."""

import numpy as np
import tensorflow as tf


def with_text_tensors(data):
    """Data with arrays of texts as tensors."""
    if isinstance(data, dict):
        return {name: with_text_tensors(each) for name, each in data.items()}
    if isinstance(data, (tuple, list)):
        if data and _are_texts(data):
            return tf.constant(data)
        if type(data) in (tuple, list):
            return type(data)(map(with_text_tensors, data))
    if isinstance(data, np.ndarray) and data.dtype.kind in "OSU":
        if data.dtype.kind != "O" or _are_texts(data.ravel()):
            return tf.constant(data)
    return data


def _are_texts(items):
    return all(isinstance(item, (str, bytes)) for item in items)
