"""Which tables of a model a search is about."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compression.only_readers import find_poolings
from keras_compembed.compression.pooling_choice import get_pooling
from keras_compembed.compression.searched_table import SearchedTable
from keras_compembed.compression.table_choice import CODES
from keras_compembed.compression.table_choice import check_found
from keras_compembed.compression.table_choice import layers_that_hold
from keras_compembed.compression.table_choice import leave
from keras_compembed.compression.table_choice import read_names
from keras_compembed.compression.table_choice import why_left
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.layer_names import named_layers

# Examples that are counted.
_EXAMPLES = 32_768


def find_searched_tables(
    model, layers, layer_settings, min_bytes, seed, search, verbose
):
    """`SearchedTable`s of a model."""
    names = named_layers(model, keras.layers.Embedding)
    wanted, own_settings = read_names(model, layers, layer_settings or {})
    held = layers_that_hold(model)
    poolings = find_poolings(model)
    found, skipped = [], []
    for name, layer in names.items():
        settings = {
            "pooled": None,
            "sample_weight": None,
            "seed": seed,
            **own_settings.get(id(layer), {}),
        }
        reason = why_left(layer, None, layers, wanted, min_bytes, held)
        if not reason:
            if settings["sample_weight"] is None:
                settings["sample_weight"] = _weights_by_counts(
                    model, layer, search.train_data
                )
            table = SearchedTable(
                name,
                layer,
                settings,
                get_pooling(
                    name, layer, {**settings, "method": Codes()}, poolings
                ),
                _own_methods(settings) or search.methods,
            )
            if not table.choices:
                reason = "no method can take its place"
        if reason:
            skipped.append(leave(name, layer, wanted, reason))
        else:
            found.append(table)
    check_found(model, found, skipped, verbose)
    return found


def _own_methods(settings):
    """A list of the method of a layer's own settings, or None."""
    if settings.get("method") is not None:
        return [settings["method"]]
    own = {name: settings[name] for name in CODES if name in settings}
    return [Codes(**own)] if own else None


def _weights_by_counts(model, layer, data):
    """How much each row of a table counts, by how often its id occurs."""
    ids = _ids_of(model, layer)
    if ids is None or data is None:
        return None
    counts = np.zeros(layer.input_dim, "int64")
    names = [x.name for x in model.inputs]
    for inputs in _inputs(data):
        found = np.ravel(keras.ops.convert_to_numpy(ids(_flat(inputs, names))))
        found = found[(found >= 0) & (found < layer.input_dim)]
        counts += np.bincount(found.astype("int64"), minlength=layer.input_dim)
    return np.sqrt(1.0 + counts)


def _ids_of(model, layer):
    """A function from a list of inputs to what goes into a layer, or None."""
    graph = model
    if isinstance(model, keras.Sequential):
        graph = vars(model).get("_functional")
    if not hasattr(graph, "operations"):
        return None
    # Of the layer's own nodes, some may be those of other models.
    nodes = [
        node
        for nodes in graph._nodes_by_depth.values()
        for node in nodes
        if _holds(node.operation, layer)
    ]
    if len(nodes) != 1 or len(nodes[0].input_tensors) != 1:
        return None
    ((node,), (tensor,)) = nodes, nodes[0].input_tensors
    before = keras.Model(graph.inputs, tensor)
    if node.operation is layer:
        return before
    inner = _ids_of(node.operation, layer)
    return inner and (lambda inputs: inner([before(inputs)]))


def _holds(operation, layer):
    return operation is layer or (
        isinstance(operation, keras.Model)
        and any(inner is layer for inner in operation._flatten_layers())
    )


def _inputs(data):
    """Yields inputs of some batches."""
    if isinstance(data, tf.data.Dataset):
        seen = 0
        for batch in data:
            inputs = batch[0] if isinstance(batch, tuple) else batch
            yield inputs
            seen += len(keras.tree.flatten(inputs)[0])
            if seen >= _EXAMPLES:
                return
        return
    number = len(keras.tree.flatten(data[0])[0])
    for start in range(0, min(number, _EXAMPLES), 1024):
        yield keras.tree.map_structure(
            lambda part, start=start: part[start : start + 1024], data[0]
        )


def _flat(inputs, names):
    """Inputs in the order of the model's, which may go by name."""
    if isinstance(inputs, dict) and set(names) <= set(inputs):
        return [inputs[name] for name in names]
    return keras.tree.flatten(inputs)
