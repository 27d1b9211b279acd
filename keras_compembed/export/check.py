"""Compares a LiteRT file with the Keras model that it came from."""

import functools
import warnings

import keras
import numpy as np

from keras_compembed.export.tracing import all_layers
from keras_compembed.export.tracing import name_outputs
from keras_compembed.utils.validation import require

# Sizes tried where a shape is open: of the batch, and of other axes.
_SIZES = ((1, 16), (3, 37))
# What a copy may be off by, of the largest output: threads add up in another
# order.
_COPY = 1e-4
# Ids that are tried last.
_FEW_IDS = 2


def random_inputs(model, signature):
    """Yields iterables of structures of random arrays, for two sizes."""
    rng = np.random.default_rng(0)
    # How many ids all embeddings know.
    common = min((x.input_dim for x in _embeddings(model)), default=None)
    common = [common] * len(keras.tree.flatten(signature))
    own = num_ids_of_inputs(model, common)
    few = [number and _FEW_IDS for number in common]
    for batch, length in _SIZES:
        yield (
            _random_input(
                model, signature, rng, batch, length >> halvings, bounds
            )
            for choices in ([own, common] if own != common else [own], [few])
            for halvings in range(length.bit_length())
            for bounds in choices
        )


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


def _embeddings(model):
    return [
        layer
        for layer in all_layers(model)
        if isinstance(getattr(layer, "input_dim", None), int)
    ]


def num_ids_of_inputs(model, default):
    """How many ids the embeddings know that each input goes to directly."""
    inputs = getattr(model, "inputs", None) or []
    if len(inputs) != len(default):
        return default
    numbers = {}
    for layer in _embeddings(model):
        for node in layer._inbound_nodes:
            for tensor in node.input_tensors:
                number = numbers.get(id(tensor), layer.input_dim)
                numbers[id(tensor)] = min(number, layer.input_dim)
    return [
        numbers.get(id(tensor), number)
        for tensor, number in zip(inputs, default, strict=True)
    ]


def _random_input(model, signature, rng, batch, length, bounds):
    flat = keras.tree.flatten(signature)
    # Which takes no negative weights.
    combiners = [getattr(x, "combiner", None) for x in all_layers(model)]
    has_sqrtn = any("sqrtn" in (x, getattr(x, "name", None)) for x in combiners)
    float_ids = not any(spec.dtype.is_integer for spec in flat)

    def fill(spec, num_ids):
        shape = [length if size is None else size for size in spec.shape]
        if shape and spec.shape[0] is None:
            shape[0] = batch
        if spec.dtype.is_bool:
            return rng.integers(2, size=shape).astype(bool)
        if spec.dtype.is_integer or (num_ids and float_ids):
            ids = rng.integers(num_ids or 2, size=shape)
            return ids.astype(spec.dtype.as_numpy_dtype)
        floats = rng.normal(size=shape).astype(spec.dtype.as_numpy_dtype)
        return np.abs(floats) if has_sqrtn else floats

    arrays = [fill(*pair) for pair in zip(flat, bounds, strict=True)]
    return keras.tree.pack_sequence_as(signature, arrays)


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
            scale = largest_of(array) or 1.0
            if (
                array.shape == got[name].shape
                and _difference(array, got[name], scale) <= _COPY
            ):
                continue
            again = run_keras(model, sample)[name]
            require(
                # Others give something else each time.
                _difference(array, again, scale) > 0,
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
