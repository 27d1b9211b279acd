"""How well a model does on given data."""

import keras
import numpy as np

from keras_compembed.layers.class_head import ClassHead
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.text_tensors import with_text_tensors


def scores(model, original, data):
    """Loss and metrics of a model and of its original on data."""
    inputs, labels = with_text_tensors(tuple(data))
    models = [x for x in (model, original) if x is not None]
    # Figures of both are of one kind.
    compiled = all(x.compiled for x in models)
    measure = _evaluate if compiled else _accuracy
    results = [measure(x, inputs, labels) for x in models]
    names = {name: None for result in results for name in result}
    empty = {} if original is None else None
    before = results[-1] if empty is None else empty
    return {name: (results[0].get(name), before.get(name)) for name in names}


def check_data(model, data):
    """Raises if data is not `(inputs, labels)`, or the layer is no model."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a Keras model where `data` is given. Received: "
            f"the layer {model.name!r}."
        )
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            "`data` must be a tuple (inputs, labels). Received: "
            f"{type(data).__name__}."
        )
    counts = [
        array.shape[0] if getattr(array, "shape", ()) else None
        for part in data
        for array in keras.tree.flatten(part)
    ]
    if None in counts:
        raise ValueError(
            "`data` must hold arrays, or dicts of them. Received: "
            f"{[type(part).__name__ for part in data]}."
        )
    if len(set(counts)) != 1 or not counts[0]:
        raise ValueError(
            "`data` must hold as many labels as inputs, and at least one. "
            f"Received: arrays of lengths {counts}."
        )


def _evaluate(model, inputs, labels):
    try:
        found = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    except Exception as error:
        # Whatever shapes and types make Keras and TensorFlow raise.
        raise _not_taken(model, error) from error
    return {name: float(value) for name, value in found.items()}


def _accuracy(model, inputs, labels):
    heads = named_layers(model, ClassHead)
    if heads:
        raise ValueError(
            "`model` must be compiled, with metrics, for `data` where it ends "
            "in a layer of classes, whose outputs are features. Received: "
            f"{model.name!r} with the layers {sorted(heads)}."
        )
    try:
        outputs = model.predict(inputs, verbose=0)
    except Exception as error:
        raise _not_taken(model, error) from error
    labels = np.asarray(labels) if not isinstance(labels, dict) else None
    is_single = isinstance(outputs, np.ndarray) and labels is not None
    if is_single and labels.shape == (*outputs.shape[:-1], 1):
        labels = labels[..., 0]
    if not (
        is_single
        and labels.dtype.kind in "iub"
        and outputs.shape[-1] > 1
        and labels.shape == outputs.shape[:-1]
    ):
        raise ValueError(
            "`model` must be compiled, with metrics, unless labels are "
            "integers and its output a number for each class. Received: "
            f"{model.name!r}, which is not compiled."
        )
    return {"accuracy": float(np.mean(outputs.argmax(-1) == labels))}


def _not_taken(model, error):
    reason = " ".join(str(error).split())[:300]
    return ValueError(
        f"`data` must be what the model {model.name!r} is evaluated on. "
        f"Received data on which Keras says: {reason}"
    )
