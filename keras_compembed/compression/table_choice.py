"""Which tables of a model are replaced, and why others are not."""

import collections
import sys

import keras
import numpy as np

from keras_compembed.exchange.only_readers import Graphs
from keras_compembed.exchange.only_readers import find_poolings
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.model_parts import own_variables
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.sizes import format_bytes
from keras_compembed.utils.validation import require

# Smaller tables stay where nobody names them.
SMALLEST_BYTES = 65_536
# What a subclass may have without computing something else.
_HARMLESS = {"get_config", "from_config"}
_METHOD_TYPES = (property, classmethod, staticmethod)


def check_model(model):
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a `keras.Model`. Received: model={model!r}."
        )
    if not model.built:
        raise ValueError(
            "`model` must be built, so that it has tables to learn from. "
            f"Received: the unbuilt model {model.name!r}."
        )


def find_layers(model, argument, names):
    """Dict from the `id` of each Embedding layer that is named to its name."""
    if names is None:
        return None
    require(
        not isinstance(names, str),
        f"`{argument}` must be a list of names.",
        **{argument: names},
    )
    paths = {
        path: layer
        for path, layer in layer_paths(model).items()
        if isinstance(layer, keras.layers.Embedding)
    }
    found = {}
    for name in names:
        layer = _find(argument, name, paths)
        require(
            id(layer) not in found,
            f"`{argument}` must name each layer once.",
            names=[found.get(id(layer)), name],
        )
        found[id(layer)] = name
    return found


def _find(argument, name, paths):
    """The Embedding layer of a path, or of a name that is one layer's."""
    if name in paths:
        return paths[name]
    found = {path: x for path, x in paths.items() if x.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(
            f"`{argument}` must name layers by path where several have one "
            f"name. Received: {name!r}, the name of {sorted(found)}."
        )
    names = sorted({layer.name for layer in paths.values()})
    raise ValueError(
        f"`{argument}` must name Embedding layers of the model, "
        f"which are {names}. Received: {name!r}."
    )


def layers_that_hold(model):
    """Dict from the `id` of a variable to the layers that have it as theirs."""
    found = {}
    for path, layer in layer_paths(model).items():
        for variable in own_variables(layer):
            found.setdefault(id(variable), {})[id(layer)] = path
    return found


def choose_tables(model, wanted, argument, make, verbose):
    """What `make(name, layer)` makes of tables: it gives a reason against one.

    `wanted` is what `find_layers` found by an argument, or None.
    """
    held = layers_that_hold(model)
    found, skipped = [], []
    for name, layer in named_layers(model, keras.layers.Embedding).items():
        is_wanted = wanted is not None and id(layer) in wanted
        if is_wanted or wanted is None:
            smallest = 0 if is_wanted else SMALLEST_BYTES
            made = reason_to_skip(layer, smallest, held) or make(name, layer)
        else:
            made = f"not named in `{argument}`"
        if not isinstance(made, str):
            found.append(made)
            continue
        if is_wanted:
            raise ValueError(
                f"`{argument}` must name layers that can be replaced. "
                f"Received: {name!r}, but {made}."
            )
        skipped.append(f"{name}: left as it is, {made}")
    if not found:
        raise ValueError(
            f"Nothing to compress in the model {model.name!r}: "
            + ("; ".join(skipped) or _why_no_tables(model))
            + "."
        )
    if verbose:
        print(*skipped, sep="\n", end="\n" if skipped else "")
    return found


def _why_no_tables(model):
    """What to say of a model without Embedding layers."""
    names = ", ".join(named_layers(model, LookupLayer))
    if not names:
        return "it has no Embedding layers"
    return (
        f"it has no Embedding layers, and is compressed already: {names}. "
        "Begin with the model that has their tables"
    )


LeftTable = collections.namedtuple(
    "LeftTable", "name input_dim output_dim stored_bytes reason"
)


def left_tables(model):
    """The Embedding layers of a model, and why some cannot be replaced."""
    method, held = Codes(), layers_that_hold(model)
    tables = []
    for name, layer in named_layers(model, keras.layers.Embedding).items():
        size = count_bytes(layer.weights)
        shape = layer.input_dim, layer.output_dim
        reason = reason_to_skip(layer, SMALLEST_BYTES, held)
        reason = reason or reason_against(layer, method)
        if not reason and method.litert_bytes(*shape) >= size:
            reason = f"{method.name} would be no smaller than it is"
        tables.append(LeftTable(name, *shape, size, reason))
    return tables


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
