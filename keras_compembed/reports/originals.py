"""Tables that the layers of a compressed model stand for."""

import keras
import numpy as np

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.model_parts import named_layers


def compressed_layers(layers):
    """Those of a dict from name to layer that are no plain tables."""
    return {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, LookupLayer)
    }


def find_originals(layers, reference, argument="reference"):
    """The originals of compressed layers."""
    if not isinstance(reference, keras.layers.Layer):
        table = np.asanyarray(reference)
        candidates = dict.fromkeys(layers, table) if len(layers) == 1 else {}
        shapes = [table.shape]
    else:
        kinds = (LookupLayer, keras.layers.Embedding)
        candidates = named_layers(reference, kinds)
        if len(layers) == 1 and len(candidates) == 1:
            candidates = dict(zip(layers, candidates.values(), strict=True))
        shapes = [_shape(layer) for layer in candidates.values()]
    found = {
        name: candidates[name]
        for name, layer in layers.items()
        if name in candidates and _shape(candidates[name]) == _shape(layer)
    }
    if not found:
        wanted = {name: _shape(layer) for name, layer in layers.items()}
        raise ValueError(
            f"`{argument}` must hold a table of the same name and shape as a "
            "compressed embedding of the model, which has "
            f"{wanted or 'none'}. "
            f"Received: tables of shape {shapes}."
        )
    return found


def _shape(source):
    if isinstance(source, keras.layers.Layer):
        return source.input_dim, source.output_dim
    return source.shape
