"""Tells of inputs that an app could not use as it would expect."""

import warnings

import keras
import tensorflow as tf

from keras_compembed.export.id_inputs import find_ids
from keras_compembed.export.tracing import all_layers

_MAX_SPECS = 4


def check_inputs(file, model, signature, is_given):
    """Warns of ids that are floats and of batches that are fixed."""
    uses = _id_uses(file)
    for name, use in uses.items():
        if use.blurred is not None:
            dtype, rows = use.blurred
            raise ValueError(
                "Ids must stay exact on their way to a table. Received: the "
                f"input {name!r}, which is {dtype} on the way to {rows:,} "
                "rows: more than it tells apart, in Keras too. Make the model "
                "with `keras.Input(shape, dtype='int32')` and give it the "
                "weights."
            )
    specs = keras.tree.flatten(signature)
    floats = [
        spec.name
        for spec in specs
        if spec.dtype.is_floating
        and spec.name in uses
        and not uses[spec.name].is_number
    ]
    fixed = [] if is_given or _is_stateful(model) else _fixed_batches(specs)
    problems = []
    if floats:
        problems.append(
            f"The file takes ids as floats: {_list(floats)}. Keras makes "
            "inputs float32 unless told otherwise."
        )
    if fixed:
        problems.append(
            f"The file takes batches of one size only: {_list(fixed)}. "
            "Calling a Sequential model without `keras.Input` fixes its "
            "batch; to keep it, pass it in `input_signature`."
        )
    if problems:
        problems.append(_remedy(signature, floats, fixed))
        warnings.warn(" ".join(problems), stacklevel=3)


def _id_uses(file):
    """A dict from names of inputs that are ids to `IdUse`."""
    (signature,) = file.signatureDefs
    uses = find_ids(file, file.subgraphs[signature.subgraphIndex])
    return {
        entry.name.decode(): uses[entry.tensorIndex]
        for entry in signature.inputs
        if entry.tensorIndex in uses
    }


def _is_stateful(model):
    """Whether layers keep a state for each row of the batch."""
    return any(getattr(layer, "stateful", False) for layer in all_layers(model))


def _fixed_batches(specs):
    return [
        spec.name
        for spec in specs
        if spec.shape.rank and (spec.shape[0] or 0) > 1
    ]


def _list(names):
    return ", ".join(map(repr, names))


def _remedy(signature, floats, fixed):
    def mend(spec):
        shape = list(spec.shape)
        if spec.name in fixed:
            shape[0] = None
        dtype = "int32" if spec.name in floats else spec.dtype.name
        return tf.TensorSpec(shape, dtype, spec.name)

    specs = keras.tree.flatten(signature)
    if len(specs) <= _MAX_SPECS:
        text = _text(keras.tree.map_structure(mend, signature))
        return f"To mend it, pass `input_signature={text}`."
    first = next(spec for spec in specs if spec.name in {*floats, *fixed})
    return (
        "To mend it, pass an `input_signature` for all inputs, with "
        f"{_text(mend(first))} for {first.name!r}."
    )


def _text(structure):
    """A structure of specs as a user would write it."""
    if isinstance(structure, dict):
        parts = (f"{key!r}: {_text(x)}" for key, x in structure.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(structure, (list, tuple)):
        return f"[{', '.join(map(_text, structure))}]"
    shape = tuple(structure.shape)
    # Names such as this one are given to those without.
    named = structure.name.startswith("inputs")
    name = "" if named else f", name={structure.name!r}"
    return f"tf.TensorSpec({shape}, {structure.dtype.name!r}{name})"
