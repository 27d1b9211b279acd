"""How often inputs read the rows of a table."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import list_nodes
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import on_one_line

# Examples for counting ids.
_EXAMPLES = 32_768


def batches_of(data, sample_inputs=None):
    """A list of inputs in batches: of data, or else the sample inputs.

    `data` are a dataset, or a tuple `(x, ...)` of arrays.
    """
    found = _batches(data)
    if not found and sample_inputs is not None:
        found = _batches((sample_inputs,)) or [sample_inputs]
    return found


def _batches(data):
    if isinstance(data, tuple):
        inputs = with_text_tensors(data[0])
        parts = keras.tree.flatten(inputs)
        if not all(isinstance(x, (np.ndarray, tf.Tensor)) for x in parts):
            return []
        return [
            keras.tree.map_structure(
                lambda part, start=start: part[start : start + 1024], inputs
            )
            for start in range(0, min(len(parts[0]), _EXAMPLES), 1024)
        ]
    found, seen = [], 0
    for batch in data if isinstance(data, tf.data.Dataset) else ():
        found.append(batch[0] if isinstance(batch, tuple) else batch)
        seen += len(keras.tree.flatten(found[-1])[0])
        if seen >= _EXAMPLES:
            break
    return found


def weights_by_counts(model, layer, batches):
    """The weight of each row, by how often inputs read it, or None."""
    readers = _readers(model, layer) if batches else ()
    if not readers:
        return None
    counts = np.zeros(layer.input_dim, "int64")
    names = [x.name for x in model.inputs]
    for ids_of, inputs in itertools.product(readers, batches):
        try:
            ids = ids_of(_flat(inputs, names))
        except Exception as error:
            raise ValueError(
                "`sample_inputs`, `inputs` and `data` must be what the model "
                f"takes. Received this error: {on_one_line(error)[:300]}"
            ) from error
        # Ragged and sparse tensors hold a list of them.
        ids = getattr(ids, "flat_values", getattr(ids, "values", ids))
        ids = np.ravel(keras.ops.convert_to_numpy(ids))
        ids = ids[(ids >= 0) & (ids < layer.input_dim)]
        counts += np.bincount(ids.astype("int64"), minlength=layer.input_dim)
    if layer.mask_zero:
        counts[0] = 0
    return np.sqrt(1.0 + counts)


def _readers(model, layer):
    """Functions from a model's inputs to the ids that a layer reads."""
    found = []
    # A layer's nodes may belong to other models.
    for node in list_nodes(model.outputs) if is_open(model) else ():
        operation, tensors = node.operation, list(node.input_tensors)
        if operation is layer and not node.arguments.kwargs.get("reverse"):
            found.append(keras.Model(model.inputs, tensors[0]))
        elif isinstance(operation, keras.Model):
            before = keras.Model(model.inputs, tensors)
            found += [
                lambda inputs, before=before, after=after: after(before(inputs))
                for after in _readers(operation, layer)
            ]
    return found


def _flat(inputs, names):
    """Inputs in the model's order, also from a dict by name."""
    if isinstance(inputs, dict) and set(names) <= set(inputs):
        return [inputs[name] for name in names]
    return keras.tree.flatten(inputs)
