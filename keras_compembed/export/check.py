"""Compares a LiteRT file with the Keras model, and its rows with layers'."""

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
from keras_compembed.export.conversion import pack
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.tracing import name_outputs
from keras_compembed.litert.flatbuffer import constants_of
from keras_compembed.litert.flatbuffer import name_op
from keras_compembed.litert.flatbuffer import name_type
from keras_compembed.litert.flatbuffer import schema
from keras_compembed.litert.flatbuffer import write_model
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.validation import require

# Rows at a time, and numbers held for them.
_ROWS = 4096
_NUMBERS = 1 << 24
# A file above so many bytes is held to a sample of rows.
_LARGE_FILE, _SAMPLE = 500_000_000, 1 << 16
# Up to where floats hold every whole number.
_EXACT = {
    schema.TensorType.FLOAT64: 2**53,
    schema.TensorType.FLOAT32: 2**24,
    schema.TensorType.FLOAT16: 2**11,
    # TensorFlow before 2.20 has no name for BFLOAT16.
    18: 2**8,
}
# What hands numbers on as they are.
_MOVES = {
    *("CAST", "CONCATENATION", "EXPAND_DIMS", "GATHER", "PACK", "RESHAPE"),
    *("SELECT", "SELECT_V2", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE"),
    *("STRIDED_SLICE", "TRANSPOSE", "UNPACK"),
}
# Places of ids, and of the table, among an op's inputs.
_LOOKUPS = {
    "EMBEDDING_LOOKUP": (0, 1),
    "GATHER": (1, 0),
    "GATHER_ND": (1, 0),
    "ONE_HOT": (0, None),
}
# What gives no numbers of its input, but places and sizes.
_ASK_FOR_PLACES = {"ARG_MAX", "ARG_MIN", "RANK", "SHAPE", "TOPK_V2"}


def run_on_inputs(model, signature, given=None):
    """Inputs that a model takes, and what it gives for each of them."""
    if given is not None:
        samples = [fit_inputs(signature, given)]
        return samples, [run_keras(model, samples[0])]
    found = [
        run_first(functools.partial(run_keras, model), each)
        for each in random_inputs(model, signature)
    ]
    return tuple(zip(*found, strict=True))


def run_first(run, candidates):
    """The first sample that can be run, and what it gives."""
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
            "`sample_inputs` must be what the model is called with. "
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
                "Exports compute in float32: let layers of your own cast to "
                "the dtype of another tensor. "
            )
        raise ValueError(
            "The model must run on the inputs that the export is checked on, "
            f"of shape {shapes}. Pass `sample_inputs` that it takes. {hint}"
            f"Received from the model: {error}"
        ) from error
    return {
        name: keras.ops.convert_to_numpy(tensor)
        for name, tensor in named.items()
    }


def check_copy(model, copy, samples):
    """Raises if a copy of a model gives something else than the model."""
    if any("16" in layer.compute_dtype for layer in all_layers(model)):
        # The copy computes with more digits.
        return
    for sample in samples:
        try:
            expected, got = run_keras(model, sample), run_keras(copy, sample)
        except ValueError:
            # Some text, which the model does not take.
            return
        for name, array in expected.items():
            if array.dtype.itemsize < 4 or array.dtype.kind != "f":
                continue
            if all_same([array], [got[name]]):
                continue
            again = run_keras(model, sample)[name]
            require(
                # Others give something else each time.
                not all_same([array], [again]),
                "The copy of the model that becomes a file must give what the "
                "model gives. What defines a layer must be in its config, its "
                "variables, or what it saves.",
                output=name,
            )


def check_nan(samples, outputs, are_texts):
    """Warns where a model gives NaN, which a file that gives it is held to."""
    # Only NaN differs from itself.
    broken = [
        sample
        for sample, arrays in zip(samples, outputs, strict=True)
        if any((array != array).any() for array in arrays.values())
    ]
    if broken and len(broken) == len(outputs):
        warnings.warn(
            "The model gives NaN for all inputs tried, and so does the file. "
            "Its weights may be NaN: was its loss, when it was trained?",
            stacklevel=5,
        )
    elif broken and are_texts:
        warnings.warn(
            f"The model gives NaN for {len(broken)} of the {len(samples)} "
            f"texts tried, such as {broken[0][0]!r}, and so does the file. A "
            "`TextVectorization` makes padding alone of a text without words, "
            "of which there is no mean. Let the app keep such texts to itself, "
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
                    "The LiteRT file must give outputs of the shapes that "
                    f"Keras gives, {array.shape} of {name!r} for inputs of "
                    f"shape {shapes}. Received: {got[name].shape}. Nothing "
                    "was written."
                )
            worst = max(worst, _difference(array, got[name], scales[name]))
    return worst


def _named_by_keras(ids, got, scores, got_scores):
    """Ids with those of Keras where classes that are alike changed places."""
    if ids.shape != got.shape:
        return got
    alike = np.isclose(got_scores, scores[..., -1:], rtol=0.05)
    named = (got[..., None] == ids[..., None, :]).any(axis=-1)
    return np.where(named | alike, ids, got)


def largest_of(array):
    """The largest finite number, without its sign; 0 for integers."""
    if array.dtype.kind != "f":
        return 0.0
    return np.max(np.abs(array[np.isfinite(array)]), initial=0.0)


def _difference(expected, got, scale):
    if expected.dtype.kind != "f":
        return float(np.mean(expected != got)) if expected.size else 0.0
    same = (expected == got) | (np.isnan(expected) & np.isnan(got))
    # Infinities, too, are not subtracted from each other.
    difference = np.zeros(expected.shape)
    np.subtract(got, expected, where=~same, out=difference)
    largest = np.max(np.abs(difference), initial=0.0)
    if not np.isfinite(largest):
        return float("inf")
    return float(largest / scale) if largest else 0.0


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
            # Less could not tell ids apart.
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


def check_inputs(file, model, signature, is_given):
    """Warns of ids that are floats and of batches that are fixed."""
    ids, specs = _find_ids(file), keras.tree.flatten(signature)
    floats = [x.name for x in specs if x.dtype.is_floating and x.name in ids]
    # Stateful layers keep a state for each row of the batch.
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
            "Keras makes inputs float32 unless told otherwise."
        )
    if fixed:
        problems.append(
            "The file takes batches of one size only: "
            f"{', '.join(map(repr, fixed))}. Calling a Sequential model "
            "without `keras.Input` fixes its batch; to keep it, pass it in "
            "`input_signature`."
        )
    if problems:
        text = _text(keras.tree.map_structure(mend, signature))
        problems.append(f"To mend it, pass `input_signature={text}`.")
        warnings.warn(" ".join(problems), stacklevel=4)


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


def _find_ids(model):
    """A set of names of inputs that are ids and nothing else."""
    (signature,) = model.signatureDefs
    graph, readers = model.subgraphs[signature.subgraphIndex], {}
    for operator in graph.operators or ():
        for place, index in enumerate(_places(operator.inputs)):
            readers.setdefault(index, []).append((operator, place))
    return {
        entry.name.decode()
        for entry in signature.inputs
        if _is_only_ids(model, graph, readers, entry)
    }


def _is_only_ids(model, graph, readers, entry):
    """Whether an input chooses rows, and is no number as well."""
    is_ids, is_number, blurred = False, False, None
    # Tensors, each with the narrowest float that its numbers have been, and
    # whether they are what the input holds still, not computed from ids.
    todo, seen = [(entry.tensorIndex, None, True)], set()
    while todo:
        index, narrowest, is_same = todo.pop()
        kind = graph.tensors[index].type
        is_float = kind in _EXACT
        is_same = is_same and is_float
        narrowest = min(
            (each for each in (kind, narrowest) if each in _EXACT),
            key=_EXACT.get,
            default=None,
        )
        if (index, narrowest, is_same) in seen:
            continue
        seen.add((index, narrowest, is_same))
        if is_same and index in graph.outputs:
            is_number = True
        for operator, place in readers.get(index, ()):
            name = name_op(model, operator)
            outputs = [
                each
                for each in _places(operator.outputs)
                if graph.tensors[each].type != schema.TensorType.BOOL
            ]
            if place == _LOOKUPS.get(name, (None,))[0]:
                is_ids = True
                rows = _count_rows(graph, operator, _LOOKUPS[name][1])
                if narrowest is not None and rows > _EXACT[narrowest]:
                    blurred = f"{name_type(narrowest)} on the way to {rows:,}"
            elif is_float and name not in _MOVES:
                # Masks and sizes are no numbers.
                is_number |= is_same and name != "SHAPE" and bool(outputs)
            elif name not in _ASK_FOR_PLACES:
                todo += [(each, narrowest, is_same) for each in outputs]
    if blurred is not None:
        raise ValueError(
            "Ids must stay exact on their way to a table: make the model with "
            "`keras.Input(shape, dtype='int32')`. Received: the input "
            f"{entry.name.decode()!r}, which is {blurred} rows, more than it "
            "tells apart, in Keras too."
        )
    return is_ids and not is_number


def _places(indices):
    return [] if indices is None else [int(index) for index in indices]


def _count_rows(graph, operator, place):
    if place is None:
        return 0
    shape = graph.tensors[operator.inputs[place]].shape
    return 0 if shape is None or not len(shape) else int(shape[0])
