"""Compares outputs and table rows of a LiteRT file with Keras."""

import functools
import os
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.exchange.copy_check import all_same
from keras_compembed.exchange.copy_check import random_inputs
from keras_compembed.export.conversion import convert
from keras_compembed.export.conversion import name_outputs
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.litert.flatbuffer import constants_of
from keras_compembed.litert.flatbuffer import pack
from keras_compembed.litert.flatbuffer import write_model
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import list_nodes
from keras_compembed.utils.validation import require

# Rows at a time, and the most floats in memory for them.
_ROWS = 1024
# Above this file size in bytes, only a sample of rows is compared.
_LARGE_FILE, _SAMPLE = 500_000_000, 1 << 16
# The largest integer that is exact in a dtype.
_EXACT = {
    "float64": 2**53,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
}


def run_on_inputs(model, signature, given=None):
    """Inputs that a model accepts, and its outputs for each of them."""
    if given is not None:
        samples = [fit_inputs(signature, given)]
        return samples, [run_keras(model, samples[0])]
    found = [
        run_first(functools.partial(run_keras, model), each)
        for each in random_inputs(model, signature)
    ]
    return tuple(zip(*found, strict=True))


def run_first(run, candidates):
    """The first sample that runs, and its outputs."""
    first_error = None
    for sample in candidates:
        try:
            return sample, run(sample)
        except ValueError as error:
            first_error = first_error or error
    raise first_error


def fit_inputs(signature, inputs):
    """The user's inputs as arrays in the structure of a signature."""
    try:
        arrays = keras.tree.map_structure_up_to(
            signature,
            lambda spec, x: np.asarray(x, spec.dtype.as_numpy_dtype),
            signature,
            inputs,
        )
        pairs = map(keras.tree.flatten, (signature, arrays))
        for spec, array in zip(*pairs, strict=True):
            if not spec.shape.is_compatible_with(array.shape):
                raise ValueError(
                    f"the shape {array.shape} of {spec.name!r} is not "
                    f"{tuple(spec.shape)}"
                )
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`sample_inputs` must match the inputs of the model. "
            f"Received: {error}."
        ) from error
    return arrays


def run_keras(model, sample):
    """A dict of output arrays."""
    try:
        named = name_outputs(model, model(sample, training=False))
    except Exception as error:
        shapes = keras.tree.map_structure(lambda x: x.shape, sample)
        hint = ""
        if any(x.dtype.kind == "f" for x in keras.tree.flatten(sample)):
            hint = (
                "If a float input holds ids, give it an integer dtype in "
                "`input_signature`. "
            )
        # "a half tensor", "bfloat16".
        if any(word in str(error) for word in ("half ", "float16")):
            hint += (
                "Exports compute in float32: make custom layers cast to the "
                "dtype of another tensor. "
            )
        raise ValueError(
            f"The model must run on test inputs of shape {shapes}. Pass "
            f"`sample_inputs` that it takes. {hint}"
            f"Received from the model: {error}"
        ) from error
    return {
        name: keras.ops.convert_to_numpy(tensor)
        for name, tensor in named.items()
    }


def check_copy(model, copy, samples):
    """Raises if a copy of a model has other outputs than the model."""
    if any("16" in layer.compute_dtype for layer in all_layers(model)):
        # The copy has a higher precision.
        return
    for sample in samples:
        try:
            expected, got = run_keras(model, sample), run_keras(copy, sample)
        except ValueError:
            # The model does not accept this text.
            return
        for name, array in expected.items():
            if array.dtype.itemsize < 4 or array.dtype.kind != "f":
                continue
            if all_same([array], [got[name]]):
                continue
            again = run_keras(model, sample)[name]
            require(
                # Other models are random.
                not all_same([array], [again]),
                "The exported copy of the model must have the outputs of the "
                "model. Each custom layer must keep all its settings in "
                "`get_config`, its variables, or `save_own_variables`.",
                output=name,
            )


def check_nan(samples, outputs, are_texts):
    """Warns if outputs are NaN: a file that gives NaN is then correct."""
    # NaN differs from itself.
    broken = [
        sample
        for sample, arrays in zip(samples, outputs, strict=True)
        if any((array != array).any() for array in arrays.values())
    ]
    if broken and len(broken) == len(outputs):
        warnings.warn(
            "The model and the file give NaN for all inputs tried. The weights "
            "may be NaN: check the training loss.",
            stacklevel=5,
        )
    elif broken and are_texts:
        warnings.warn(
            f"The model and the file give NaN for {len(broken)} of the "
            f"{len(samples)} texts tried, such as {broken[0][0]!r}. "
            "`TextVectorization` turns a text without words into padding only, "
            "which has no mean. Skip such texts in the app, "
            "or use a `keras_compembed.text.WordTokenizer` of the same words, "
            "which reads them as one unknown word.",
            stacklevel=5,
        )


def compare(run, names, samples, outputs):
    """Largest relative difference between a file and its model."""
    scales = {
        name: max(largest_of(arrays[name]) for arrays in outputs) or 1.0
        for name in outputs[0]
    }
    worst = 0.0
    for sample, expected in zip(samples, outputs, strict=True):
        inputs = dict(zip(names, keras.tree.flatten(sample), strict=True))
        shapes = {name: array.shape for name, array in inputs.items()}
        try:
            got = run(inputs)
        except (RuntimeError, ValueError) as error:
            raise RuntimeError(
                "The LiteRT file must run. Received from the runtime, for "
                f"inputs of shape {shapes}: {error}"
            ) from error
        if len(expected) == 1:
            got = {next(iter(expected)): got}
        for name in expected:
            for part in ("probabilities", "scores"):
                pair = f"{name.removesuffix('ids')}{part}"
                if name.endswith("ids") and pair in expected:
                    got[name] = _named_by_keras(
                        expected[name], got[name], expected[pair], got[pair]
                    )
        for name, array in expected.items():
            if array.shape != got[name].shape:
                raise RuntimeError(
                    f"The output {name!r} of the LiteRT file must have the "
                    f"shape of Keras, {array.shape}, for inputs of shape "
                    f"{shapes}. Received: {got[name].shape}. Nothing was "
                    "written."
                )
            worst = max(worst, _difference(array, got[name], scales[name]))
    return worst


def _named_by_keras(ids, got, scores, got_scores):
    """Ids, with those of Keras where equal classes changed places."""
    if ids.shape != got.shape:
        return got
    alike = np.isclose(got_scores, scores[..., -1:], rtol=0.05)
    named = (got[..., None] == ids[..., None, :]).any(axis=-1)
    return np.where(named | alike, ids, got)


def largest_of(array):
    """The largest finite absolute value; 0 for integers."""
    if array.dtype.kind != "f":
        return 0.0
    return np.max(np.abs(array[np.isfinite(array)]), initial=0.0)


def _difference(expected, got, scale):
    if expected.dtype.kind != "f":
        return float(np.mean(expected != got)) if expected.size else 0.0
    largest = np.max(_differences(expected, got), initial=0.0)
    return float(largest / scale) if largest else 0.0


def _differences(expected, got):
    """Absolute differences; infinite where one side is NaN or infinite."""
    same = (expected == got) | (np.isnan(expected) & np.isnan(got))
    # Infinities are not subtracted from each other.
    differences = np.zeros(expected.shape)
    np.subtract(got, expected, where=~same, out=differences)
    return np.nan_to_num(np.abs(differences), nan=np.inf, posinf=np.inf)


def check_rows(model, forms, copy, options, tolerance):
    """The largest error of rows, and names of layers compared and not."""
    # In a separate file: ops for the comparison alone could raise the
    # minimum runtime of the exported file.
    lookups = {
        f"rows_{place}": (layer, form)
        for place, (layer, form) in enumerate(forms.items())
    }
    if not lookups:
        return None, (), ()
    functions = {name: _rows_function(x) for name, (_, x) in lookups.items()}
    rows = convert(functions, copy, options.quantize)
    pack(rows, options, is_whole=False)
    graphs = {
        x.signatureKey.decode(): rows.subgraphs[x.subgraphIndex]
        for x in rows.signatureDefs
    }
    in_model = constants_of(model, model.subgraphs).keys()
    errors, held, not_held = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.tflite")
        content = write_model(rows)
        with open(path, "wb") as file:
            file.write(content)
        for name, (layer, form) in lookups.items():
            sizes = constants_of(rows, [graphs[name]])
            shared = max(map(sizes.get, in_model & sizes.keys()), default=0)
            # With fewer distinct rows, ids would look alike.
            if shared < max(1, layer.input_dim // 8):
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


def _rows_function(form):
    function = tf.function(
        lambda ids: {"rows": form.look_up(ids)},
        input_signature=[tf.TensorSpec((None,), tf.int32, "ids")],
        autograph=False,
    )
    return function.get_concrete_function()


def _compare(layer, form, run, ids, quantize, tolerance):
    """The largest difference, relative to the largest entry of the table."""
    worst, largest, worst_id = 0.0, 0.0, None
    for start in range(0, len(ids), _ROWS):
        part = ids[start : start + _ROWS]
        expected = keras.ops.convert_to_numpy(
            form.store.read(tf.constant(part))
        )
        expected = expected.astype("float32", copy=False)
        largest = max(largest, largest_of(expected))
        differences = _differences(expected, run(part)).max(axis=1)
        place = np.argmax(differences)
        if differences[place] > worst:
            worst, worst_id = differences[place], part[place]
    allowed = form.tolerance(quantize, largest)
    if tolerance is not None:
        allowed = max(allowed, tolerance * largest)
    if not worst <= allowed:
        raise RuntimeError(
            f"Rows of the layer {layer.name!r} in the LiteRT file must equal "
            f"those of Keras, within {allowed:.2g}. "
            f"Received: a difference of {worst:.2g} at id {worst_id}. Nothing "
            "was written."
        )
    return float(worst / largest) if worst else 0.0


def check_inputs(model, signature, is_given):
    """Warns about float ids and fixed batch sizes."""
    specs = keras.tree.flatten(signature)
    floats = _ids_as_floats(model, specs)
    # Stateful layers keep a state for each example of a batch.
    is_stateful = any(getattr(x, "stateful", False) for x in all_layers(model))
    fixed = [
        spec.name
        for spec in specs
        if spec.shape.rank and (spec.shape[0] or 0) > 1
        if not is_given and not is_stateful
    ]

    def mend(spec):
        shape = list(spec.shape)
        if spec.name in fixed:
            shape[0] = None
        dtype = "int32" if spec.name in floats else spec.dtype.name
        return tf.TensorSpec(shape, dtype, spec.name)

    problems = []
    if floats:
        problems.append(
            f"The file takes ids as floats: {', '.join(map(repr, floats))}. "
            "Inputs of Keras are float32 by default."
        )
    if fixed:
        problems.append(
            "The file has a fixed batch size: "
            f"{', '.join(map(repr, fixed))}. Calling a Sequential model "
            "without `keras.Input` fixes the batch size. To keep it, pass it "
            "in `input_signature`."
        )
    if problems:
        text = _text(keras.tree.map_structure(mend, signature))
        problems.append(f"To fix it, pass `input_signature={text}`.")
        warnings.warn(" ".join(problems), stacklevel=4)


def _text(structure):
    """A structure of specs as Python code."""
    if isinstance(structure, dict):
        parts = (f"{key!r}: {_text(x)}" for key, x in structure.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(structure, (list, tuple)):
        return f"[{', '.join(map(_text, structure))}]"
    shape = tuple(structure.shape)
    # Keras gives such names to inputs without a name.
    named = structure.name.startswith("inputs")
    name = "" if named else f", name={structure.name!r}"
    return f"tf.TensorSpec({shape}, {structure.dtype.name!r}{name})"


def _ids_as_floats(model, specs):
    """Names of float inputs that only tables read, as ids."""
    inputs, names = getattr(model, "inputs", None) or [], []
    if len(inputs) != len(specs):
        return names
    nodes = list_nodes(model.outputs)
    for tensor, spec in zip(inputs, specs, strict=True):
        readers = [
            node
            for node in nodes
            if any(each is tensor for each in node.input_tensors)
        ]
        tables = [node for node in readers if _reads_ids(node, tensor)]
        if not tables or tensor.dtype not in _EXACT:
            continue
        rows = max(node.operation.input_dim for node in tables)
        require(
            rows <= _EXACT[tensor.dtype],
            "Ids must be exact: make the model with "
            "`keras.Input(shape, dtype='int32')`. Floats of the input's dtype "
            f"cannot represent {rows:,} rows, in Keras either.",
            input=spec.name,
            dtype=tensor.dtype,
        )
        # Masks compare ids.
        masks = [x for x in readers if type(x.operation).__name__ == "NotEqual"]
        if spec.dtype.is_floating and len(tables + masks) == len(readers):
            names.append(spec.name)
    return names


def _reads_ids(node, tensor):
    """Whether a layer only looks up rows with a tensor."""
    args, kwargs = node.arguments.args, node.arguments.kwargs
    is_table = isinstance(node.operation, keras.layers.Embedding | LookupLayer)
    return is_table and args[0] is tensor and not kwargs.get("reverse")
