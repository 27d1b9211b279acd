"""Compares all rows of look-ups in a LiteRT file with their stores."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.check import largest_of
from keras_compembed.export.conversion import convert
from keras_compembed.export.conversion import finish
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.litert.flatbuffer import constants_of
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.litert.flatbuffer import write_model

# Rows at a time, and numbers held for them.
_ROWS = 4096
_NUMBERS = 1 << 24
# A file above so many bytes is held to a sample of rows.
_LARGE_FILE, _SAMPLE = 500_000_000, 1 << 16


def check_rows(model, forms, copy, options, tolerance):
    """The largest error of rows, and names of layers held to Keras or not.

    Rows are read in a file of their own, of the same tables: in that of the
    model, ops that only the comparison needs would ask for newer runtimes.
    """
    lookups = {
        f"rows_{place}": (layer, form)
        for place, (layer, form) in enumerate(forms.items())
    }
    if not lookups:
        return None, (), ()
    functions = {name: _rows_function(x) for name, (_, x) in lookups.items()}
    rows = read_model(convert(functions, copy, options.quantize))
    finish(rows, options, is_whole=False)
    errors, held, not_held = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.tflite")
        content = write_model(rows)
        with open(path, "wb") as file:
            file.write(content)
        for name, (layer, form) in lookups.items():
            if not _are_in(model, rows, name, layer.input_dim):
                if form.is_read:
                    not_held[layer.name] = None
                continue
            held[layer.name] = None
            ids = form.ids_to_compare()
            if len(content) > _LARGE_FILE and len(ids) > _SAMPLE:
                rng = np.random.default_rng(0)
                ids = rng.choice(ids, _SAMPLE, replace=False)
            threads = os.cpu_count() if len(ids) > _ROWS else 1
            run = LiteRTModel(path, threads, name)
            error = _compare(layer, form, run, ids, options.quantize, tolerance)
            errors.append(error)
    held = tuple(name for name in held if name not in not_held)
    return max(errors, default=None), held, tuple(not_held)


def _are_in(model, rows, name, num_ids):
    """Whether a model has the table that a signature of rows reads."""
    places = {x.signatureKey.decode(): x for x in rows.signatureDefs}
    graph = rows.subgraphs[places[name].subgraphIndex]
    shared = constants_of(model, model.subgraphs).keys()
    sizes = constants_of(rows, [graph])
    # Less could not tell ids apart.
    return any(sizes[each] >= num_ids // 8 for each in shared & sizes.keys())


def _rows_function(form):
    function = tf.function(
        lambda ids: {"rows": form.look_up(ids)},
        input_signature=[tf.TensorSpec((None,), tf.int32, "ids")],
        autograph=False,
    )
    return function.get_concrete_function()


def _compare(layer, form, run, ids, quantize, tolerance):
    """The largest difference over the largest number of the table."""
    worst, largest, worst_id = 0.0, 0.0, None
    size = max(1, min(_ROWS, _NUMBERS // form.numbers_per_row))
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        expected = keras.ops.convert_to_numpy(
            form.store.read(tf.constant(part))
        )
        expected = expected.astype("float32", copy=False)
        largest = max(largest, largest_of(expected))
        differences = _differences(run(part), expected)
        place = np.argmax(differences)
        if differences[place] > worst:
            worst, worst_id = differences[place], part[place]
    allowed = form.tolerance(quantize, largest)
    if tolerance is not None:
        allowed = max(allowed, tolerance * largest)
    if not worst <= allowed:
        raise RuntimeError(
            f"The look-up of the layer {layer.name!r} in the LiteRT file must "
            f"give what Keras gives, within {allowed:.2g} for each id. "
            f"Received: a difference of {worst:.2g} at id {worst_id}. Nothing "
            "was written."
        )
    return float(worst / largest) if worst else 0.0


def _differences(got, expected):
    """The largest difference of each row; infinite if a number is missing."""
    with np.errstate(invalid="ignore"):
        differences = np.abs(got - expected)
    if not np.isfinite(np.sum(differences)):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        differences[same] = 0
        differences[~np.isfinite(differences)] = np.inf
    return differences.max(axis=1, initial=0.0)
