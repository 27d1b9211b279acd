"""Finds poolings that are the only readers of a table, and replaces them."""

import collections
import dataclasses
import inspect
import math

import keras

from keras_compembed.utils.model_parts import inner_layers
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import list_nodes
from keras_compembed.utils.model_parts import node_of


@dataclasses.dataclass(frozen=True, eq=False)
class Pooling:
    """A pooling that is the only reader of a table's rows."""

    combiner: str
    mask_zero: bool
    node: object
    # Layers between the table and the pooling.
    passed: list

    @property
    def operation(self):
        return self.node.operation

    @property
    def outputs(self):
        return self.node.outputs

    @property
    def empty_value(self):
        """The output where there is nothing to pool."""
        return math.nan if self.combiner == "mean" else 0.0


class Graphs:
    """The graphs of Sequential and functional models in a model."""

    def __init__(self, model):
        self._graphs = []
        self._uses = collections.Counter()
        self._search(model, set())
        for _, nodes in self._graphs:
            self._uses.update(id(node.operation) for node in nodes)

    def _search(self, layer, seen):
        if not _has_graph(layer):
            for inner in inner_layers(layer):
                if not _has_graph(inner):
                    self._uses[id(inner)] += 1
                self._search(inner, seen)
        elif id(layer) not in seen:
            seen.add(id(layer))
            self._graphs.append((layer, list_nodes(layer.outputs)))
            for inner in layer.layers:
                self._search(inner, seen)

    def single_calls(self, is_wanted):
        """Yields graphs and nodes of layers that are called once."""
        for graph in self._graphs:
            for node in graph[1]:
                if self._uses[id(node.operation)] == 1:
                    if is_wanted(node.operation):
                        yield graph, node

    def num_calls(self, operation):
        return self._uses[id(operation)]

    def only_reader(self, graph, tensor, passes=()):
        """The only node that reads a tensor, its input, and layers between."""
        (model, nodes), passed = graph, []
        while True:
            readers = [
                node
                for node in nodes
                for each in node.input_tensors
                if each is tensor
            ]
            if len(readers) != 1 or any(x is tensor for x in model.outputs):
                return None
            operation = readers[0].operation
            if type(operation) not in passes:
                return readers[0], tensor, passed
            if self._uses[id(operation)] != 1:
                return None
            passed.append(operation)
            (tensor,) = readers[0].outputs


def find_poolings(graphs, is_table, passes=()):
    """Poolings that are the only readers of tables, by table `id`."""
    found, pooled = {}, collections.Counter()
    for graph, node in graphs.single_calls(is_table):
        pooling = _only_pooling(graphs, graph, node, passes)
        if pooling is not None:
            found[id(node.operation)] = pooling
            pooled[id(pooling.operation)] += 1
    return {
        key: pooling
        for key, pooling in found.items()
        if pooled[id(pooling.operation)] == graphs.num_calls(pooling.operation)
    }


def is_graph(layer):
    """Whether a layer is a model defined by its graph."""
    if type(layer) is keras.Sequential:
        return True
    if isinstance(layer, keras.Sequential) or not hasattr(layer, "operations"):
        return False
    arguments = list(inspect.signature(type(layer).__init__).parameters)
    return arguments[1:4] == ["inputs", "outputs", "name"]


def _has_graph(layer):
    return is_graph(layer) and is_open(layer)


def ids_of(node):
    """The ids `(texts, length)` of a lookup without other readers, or None."""
    arguments = node.arguments
    if len(arguments.args) != 1 or arguments.kwargs:
        return None
    (ids,) = arguments.args
    # For sparse ids, an Embedding looks up 0 in empty places.
    if len(ids.shape) != 2 or ids.sparse or getattr(ids, "ragged", False):
        return None
    # An Embedding ignores masks.
    return ids if getattr(ids, "_keras_mask", None) is None else None


def _only_pooling(graphs, graph, node, passes):
    """The `Pooling` that is the only reader of a table call."""
    ids, layer = ids_of(node), node.operation
    if ids is None:
        return None
    found = graphs.only_reader(graph, node.outputs[0], passes)
    if found is None:
        return None
    node, rows, passed = found
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
            # Half-precision rows may be pooled in float32.
            and operation.compute_dtype == layer.compute_dtype
            and operation.activity_regularizer is None
            and (_is_not_zero(mask, ids) if mask is not None else not is_masked)
        ):
            return Pooling("mean", mask is not None, node, passed)
        return None
    combiner = _name_of_op(operation).lower()
    if combiner not in ("mean", "sum"):
        return None
    axis = operation.axis
    axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    if axes in ([1], [-2]):
        return Pooling(combiner, False, node, passed)
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
    """The name of a `keras.ops` operation, or `""`."""
    cls = type(operation)
    is_keras = cls.__module__.partition(".")[0] == "keras"
    is_op = is_keras and not isinstance(operation, keras.layers.Layer)
    return cls.__name__ if is_op else ""


@keras.saving.register_keras_serializable(package="keras_compembed")
class PooledBefore(keras.Operation):
    """Passes on vectors `(batch, width)` that are already pooled."""

    def __init__(self, keepdims=False, *, name=None):
        super().__init__(name=name)
        self.keepdims = keepdims

    def call(self, inputs):
        if not self.keepdims:
            return inputs
        return keras.ops.expand_dims(inputs, 1)

    def compute_output_spec(self, inputs):
        batch, width = inputs.shape
        shape = (batch, 1, width) if self.keepdims else (batch, width)
        return keras.KerasTensor(shape, dtype=inputs.dtype)


def pooled_before(operation, width):
    """The replacement of a pooling, with its name."""
    if not isinstance(operation, keras.layers.Layer):
        return PooledBefore(operation.keepdims, name=operation.name)
    if operation.keepdims:
        layer = keras.layers.Reshape((1, width), name=operation.name)
    else:
        layer = keras.layers.Identity(name=operation.name)
    # Set later: an `Identity` does not save it.
    layer.dtype_policy = operation.dtype_policy
    return layer
