"""Tables of a search, and what methods lose of them."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compression.method_choices import MethodErrors
from keras_compembed.compression.method_choices import choices_by_default
from keras_compembed.compression.method_choices import choices_of
from keras_compembed.compression.replaced_table import ReplacedTable
from keras_compembed.compression.replaced_table import read_tables
from keras_compembed.compression.table_choice import choose_tables
from keras_compembed.compression.table_choice import find_layers
from keras_compembed.compression.table_choice import reason_against
from keras_compembed.methods.exact_methods import exact_methods
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import list_nodes
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table

# Examples that are counted.
_EXAMPLES = 32_768


class SearchedTable:
    """A table, the methods that may store it, and what they lose."""

    def __init__(self, name, layer, sample_weight, seed, methods):
        self.name = name
        self.layer = layer
        self.sample_weight = sample_weight
        self._seed = seed
        self._tables = read_tables(layer)
        for table in self._tables:
            check_table(table, f"embeddings of {name}")
        first = self._tables[0]
        weight = check_sample_weight(sample_weight, len(first))
        self.errors = MethodErrors(self._tables, weight, seed)
        if methods is not None:
            choices = choices_of(methods)
        else:
            choices = choices_of(exact_methods(first))
            choices += choices_by_default(first, weight)
        self.choices = [
            x for x in choices if reason_against(layer, x.method) is None
        ]
        self._weights = {}

    def bytes_of(self, method, quantize, width=None):
        """Integer, constants of the table in a file."""
        size = method.litert_bytes(
            self.layer.input_dim, width or self.layer.output_dim, quantize
        )
        return len(self._tables) * size

    def replaced(self, method, poolings):
        """A `ReplacedTable` that has learned nothing yet."""
        method = method.for_table(self.sample_weight)
        return ReplacedTable(
            self.name, self.layer, method, self._seed, 0, poolings
        )

    def fit_with_care(self, choice):
        """Fits to the whole table; what is learned is kept for copies."""
        if choice not in self._weights:
            replaced = self.replaced(choice.method, {})
            replaced.learn()
            found = [part.embeddings for part in replaced.small_parts()]
            self.errors.known[choice] = self.errors.of(found)
            self._weights[choice] = replaced.small.get_weights()

    def fill(self, replaced, choice):
        """Gives a layer what was learned for a choice, or learns it."""
        weights = self._weights.get(choice, ())
        shapes = [weight.shape for weight in replaced.small.weights]
        if shapes == [x.shape for x in weights]:
            replaced.small.set_weights(weights)
        else:
            replaced.learn()


def find_searched_tables(model, budget, layers, seed, verbose):
    """`SearchedTable`s of a model."""
    given = find_layers(model, "sample_weight", budget.sample_weight)

    def searched(name, layer):
        if id(layer) in given:
            weight = budget.sample_weight[given[id(layer)]]
        else:
            weight = _weights_by_counts(model, layer, budget.data)
        table = SearchedTable(name, layer, weight, seed, budget.methods)
        return table if table.choices else "no method can take its place"

    wanted = find_layers(model, "layers", layers)
    return choose_tables(model, wanted, "layers", searched, verbose)


def _weights_by_counts(model, layer, data):
    """How much each row of a table counts, by how often its id occurs."""
    ids = _ids_of(model, layer)
    if ids is None or data is None or data.train is None:
        return None
    counts = np.zeros(layer.input_dim, "int64")
    names = [x.name for x in model.inputs]
    for inputs in _inputs(data.train):
        found = np.ravel(keras.ops.convert_to_numpy(ids(_flat(inputs, names))))
        found = found[(found >= 0) & (found < layer.input_dim)]
        counts += np.bincount(found.astype("int64"), minlength=layer.input_dim)
    return np.sqrt(1.0 + counts)


def _ids_of(model, layer):
    """A function from a list of inputs to what goes into a layer, or None."""
    if not is_open(model):
        return None
    # Of the layer's own nodes, some may be those of other models.
    nodes = [
        node
        for node in list_nodes(model.outputs)
        if node.operation is layer
        or isinstance(node.operation, keras.Model)
        and any(x is layer for x in all_layers(node.operation))
    ]
    if len(nodes) != 1 or len(nodes[0].input_tensors) != 1:
        return None
    ((node,), (tensor,)) = nodes, nodes[0].input_tensors
    before = keras.Model(model.inputs, tensor)
    if node.operation is layer:
        return before
    inner = _ids_of(node.operation, layer)
    return inner and (lambda inputs: inner([before(inputs)]))


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
