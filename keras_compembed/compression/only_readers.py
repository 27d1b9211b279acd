"""Finds tables whose rows nothing but a pooling reads."""

import collections
import dataclasses
import inspect
import math

import keras

from keras_compembed.compression.replaceable_layers import is_embed_reduce
from keras_compembed.utils.model_outputs import is_open
from keras_compembed.utils.model_outputs import list_nodes
from keras_compembed.utils.model_outputs import node_of


@dataclasses.dataclass(frozen=True)
class Pooling:
    """The pooling that alone reads the rows of a table."""

    operation: object
    combiner: str
    mask_zero: bool

    @property
    def empty_value(self):
        """What it gives where there is nothing to pool."""
        return math.nan if self.combiner == "mean" else 0.0


def find_poolings(model):
    """The poolings of a model that alone read the rows of a table."""
    graphs, others = _graphs(model)
    uses = collections.Counter(others)
    for graph in graphs:
        uses.update(id(node.operation) for node in list_nodes(graph.outputs))
    found, pooled = {}, collections.Counter()
    for graph in graphs:
        for node in list_nodes(graph.outputs):
            layer = node.operation
            if uses[id(layer)] == 1 and _is_plain_embedding(layer):
                pooling = _only_reader(graph, node)
                if pooling is not None:
                    found[id(layer)] = pooling
                    pooled[id(pooling.operation)] += 1
    return {
        key: pooling
        for key, pooling in found.items()
        if pooled[id(pooling.operation)] == uses[id(pooling.operation)]
    }


def _is_plain(layer):
    """Whether a layer is a model of layers, as Keras makes it."""
    if type(layer) is keras.Sequential:
        return True
    if isinstance(layer, keras.Sequential) or not hasattr(layer, "operations"):
        return False
    arguments = list(inspect.signature(type(layer).__init__).parameters)
    return arguments[1:4] == ["inputs", "outputs", "name"]


def _graphs(model):
    """The graphs in a model, and the `id`s of layers that others hold."""
    graphs, others, seen = [], [], set()

    def search(layer):
        if id(layer) in seen:
            return
        seen.add(id(layer))
        if not _is_plain(layer) or not is_open(layer):
            inner = layer._flatten_layers(include_self=False)
            others.extend(id(x) for x in inner)
            return
        graphs.append(layer)
        for inner in layer.layers:
            search(inner)

    search(model)
    return graphs, others


def _is_plain_embedding(layer):
    """Whether a layer gives rows, and nothing is computed of them besides."""
    return (
        isinstance(layer, keras.layers.Embedding)
        and not isinstance(layer, keras.layers.ReversibleEmbedding)
        and not is_embed_reduce(layer)
        and layer.activity_regularizer is None
    )


def _only_reader(graph, node):
    """The `Pooling` that alone reads what a call of an Embedding gives."""
    (rows,) = node.outputs
    arguments = node.arguments
    if len(arguments.args) != 1 or arguments.kwargs:
        return None
    (ids,) = arguments.args
    # Of sparse ids, an Embedding looks up 0 where there are none.
    if len(ids.shape) != 2 or ids.sparse or getattr(ids, "ragged", False):
        return None
    # Which an Embedding does not read.
    if getattr(ids, "_keras_mask", None) is not None:
        return None
    readers = [
        reader
        for reader in list_nodes(graph.outputs)
        for tensor in reader.input_tensors
        if tensor is rows
    ]
    if len(readers) != 1 or any(tensor is rows for tensor in graph.outputs):
        return None
    return _pooling(readers[0], rows, ids, node.operation)


def _pooling(node, rows, ids, layer):
    operation, arguments = node.operation, node.arguments
    if len(arguments.args) != 1 or arguments.args[0] is not rows:
        return None
    options = dict(arguments.kwargs)
    mask = options.pop("mask", None)
    if options:
        return None
    if type(operation) is keras.layers.GlobalAveragePooling1D:
        is_masked = getattr(rows, "_keras_mask", None) is not None
        if (
            operation.data_format == "channels_last"
            # Rows of half precision may be pooled in float32.
            and operation.compute_dtype == layer.compute_dtype
            and operation.activity_regularizer is None
            and (_is_not_zero(mask, ids) if mask is not None else not is_masked)
        ):
            return Pooling(operation, "mean", mask is not None)
        return None
    combiner = _name_of_op(operation).lower()
    if combiner in ("mean", "sum") and _is_over_time(operation.axis):
        return Pooling(operation, combiner, False)
    return None


def _is_not_zero(mask, ids):
    """Whether a mask is that of an Embedding with `mask_zero`."""
    node = node_of(mask)
    if _name_of_op(node.operation) != "NotEqual":
        return False
    arguments = node.arguments
    if len(arguments.args) != 2 or arguments.kwargs:
        return False
    left, right = arguments.args
    return left is ids and isinstance(right, int) and right == 0


def _name_of_op(operation):
    """The name of an operation of `keras.ops`, or `""`."""
    cls = type(operation)
    is_keras = cls.__module__.partition(".")[0] == "keras"
    is_op = is_keras and not isinstance(operation, keras.layers.Layer)
    return cls.__name__ if is_op else ""


def _is_over_time(axis):
    axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    return len(axes) == 1 and axes[0] in (1, -2)
