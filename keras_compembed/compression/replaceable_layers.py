"""Which Embedding layers can be replaced."""

import sys

import keras
import numpy as np

from keras_compembed.exchange.only_readers import Graphs
from keras_compembed.exchange.only_readers import find_poolings
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.sizes import format_bytes

# What a subclass may have without computing something else.
_HARMLESS = {"get_config", "from_config"}
_METHOD_TYPES = (property, classmethod, staticmethod)


def reason_to_skip(layer, smallest, held):
    """Why a layer cannot or need not be replaced, or None."""
    holders = {}
    for variable in layer.variables:
        holders.update(held.get(id(variable), {}))
    if holders.pop(id(layer), None) is None:
        return "it has no table yet, as it was never called"
    if holders:
        others = ", ".join(map(repr, holders.values()))
        return f"its table is also read by {others}"
    own, _ = differences(layer)
    if own or mask_zero(layer) is None:
        cls = type(layer).__name__
        return (
            f"its class {cls} does more than an {_kind(layer).__name__}, by "
            f"{listed(own or ['compute_mask'])}: write the same in a subclass "
            "of `CodeEmbedding`, and put its `from_table` of the table in the "
            "layer's place"
        )
    before = count_bytes(layer.weights)
    if before < smallest:
        return f"{format_bytes(before)} is below {format_bytes(smallest)}"
    return None


def reason_against(layer, method):
    """Why rows of a method cannot be in the place of a layer, or None."""
    can_hold = True
    if is_embed_reduce(layer):
        if not method.pooled:
            return "it pools by itself, which `pooled=False` cannot change"
        can_hold = method.combines
    elif isinstance(layer, keras.layers.ReversibleEmbedding):
        can_hold = method.reverses
    if not can_hold:
        return (
            f"nothing in the place of an {_kind(layer).__name__} holds "
            f"{method.name}"
        )
    return method.reason_against(layer.input_dim, layer.output_dim)


def mask_zero(layer):
    """The `mask_zero` that masks as the layer does, or None if none does."""
    if type(layer).compute_mask is _kind(layer).compute_mask:
        return layer.mask_zero
    ids = np.arange(layer.input_dim, dtype="int32")[None]
    mask = layer.compute_mask(ids)
    if mask is None:
        return False
    same = np.array_equal(keras.ops.convert_to_numpy(mask), ids != 0)
    return True if same else None


def is_embed_reduce(layer):
    """Whether a layer is a `keras_rs.layers.EmbedReduce`."""
    # Nobody has such a layer who has not imported keras-rs.
    layers = getattr(sys.modules.get("keras_rs"), "layers", None)
    cls = getattr(layers, "EmbedReduce", None)
    return cls is not None and isinstance(layer, cls)


def _kind(layer):
    """The class of Keras or keras-rs that a layer is of."""
    if isinstance(layer, keras.layers.ReversibleEmbedding):
        return keras.layers.ReversibleEmbedding
    if is_embed_reduce(layer):
        return sys.modules["keras_rs"].layers.EmbedReduce
    return keras.layers.Embedding


def differences(layer):
    """Names of methods that the class of a layer has of its own."""
    kind = _kind(layer)
    classes = type(layer).__mro__
    names = {
        name
        for cls in classes[: classes.index(kind)]
        for name, value in vars(cls).items()
        if callable(value) or isinstance(value, _METHOD_TYPES)
    }
    # Such as `__init__` and `__repr__`.
    names = {x for x in names if x == "__call__" or not x.startswith("__")}
    names -= _HARMLESS
    if kind is keras.layers.Embedding:
        # `mask_zero` finds out what it does.
        names.discard("compute_mask")
    own = sorted(name for name in names if hasattr(kind, name))
    added = sorted(names.difference(own))
    return own, [name for name in added if not name.startswith("_")]


def listed(names):
    """Names as code in a sentence."""
    return ", ".join(f"`{name}`" for name in names)


def find_table_poolings(model):
    """The poolings of a model that alone read the rows of a table."""
    return find_poolings(Graphs(model), _is_plain_embedding)


def _is_plain_embedding(layer):
    """Whether a layer gives rows, and nothing is computed of them besides."""
    return (
        isinstance(layer, keras.layers.Embedding)
        and not isinstance(layer, keras.layers.ReversibleEmbedding)
        and not is_embed_reduce(layer)
        and layer.activity_regularizer is None
    )
