"""How well a model does on given data."""

import keras
import numpy as np

from keras_compembed.layers.class_head import ClassHead
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import require


def scores(model, original, data):
    """Loss and metrics of a model and of its original on data."""
    _check_data(model, data)
    inputs, labels = with_text_tensors(tuple(data))
    models = [x for x in (model, original) if x is not None]
    # Figures of both are of one kind.
    compiled = all(x.compiled for x in models)
    results = [_measured(x, inputs, labels, compiled) for x in models]
    before = results[1] if original is not None else {}
    return {x: (results[0].get(x), before.get(x)) for x in results[0] | before}


def _check_data(model, data):
    """Raises if data is not `(inputs, labels)`, or the layer is no model."""
    require(
        isinstance(model, keras.Model),
        "`model` must be a Keras model where `data` is given.",
        model=model,
    )
    require(
        isinstance(data, tuple | list) and len(data) == 2,
        "`data` must be a tuple (inputs, labels).",
        data=type(data).__name__,
    )
    counts = {
        array.shape[0] if getattr(array, "shape", ()) else None
        for part in data
        for array in keras.tree.flatten(part)
    }
    require(
        len(counts) == 1 and min(counts, key=bool),
        "`data` must be arrays, or dicts of them, with as many labels as "
        "inputs, and at least one.",
        lengths=counts,
    )


def _measured(model, inputs, labels, compiled):
    try:
        if not compiled:
            return _accuracy(model, inputs, labels)
        found = model.evaluate(inputs, labels, verbose=0, return_dict=True)
        return {name: float(value) for name, value in found.items()}
    except Exception as error:
        # Whatever shapes and types make Keras and TensorFlow raise.
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"`data` must be what the model {model.name!r} is evaluated on. "
            f"Received data on which Keras says: {reason}"
        ) from error


def _accuracy(model, inputs, labels):
    labels = np.asarray(labels)
    outputs = None
    if not named_layers(model, ClassHead):
        outputs = model.predict(inputs, verbose=0)
    if isinstance(outputs, np.ndarray):
        if labels.shape == (*outputs.shape[:-1], 1):
            labels = labels[..., 0]
        if (
            labels.dtype.kind in "iub"
            and outputs.shape[-1] > 1
            and labels.shape == outputs.shape[:-1]
        ):
            return {"accuracy": float(np.mean(outputs.argmax(-1) == labels))}
    raise ValueError(
        "a model that is not compiled, with metrics, must return a number for "
        "each class, and labels must be integers."
    )
