"""Comparison of copies with their models, on sample inputs."""

import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.exchange.model_copy import layer_pairs
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.validation import on_one_line

# Relative difference allowed, as threads may sum in another order.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 1e-2
# Words per sample text.
_TEXT_LENGTH = 16
_PLAIN = (bool, float, int, str, type(None))
# Sizes to try for open axes: of the batch, and of others.
_SIZES = ((1, 16), (3, 37))
# The number of ids to try last.
_FEW_IDS = 2
# Given examples to compare.
_MOST_EXAMPLES = 64


class CopyCheck:
    """Compares a copy with its model, before and after replacement."""

    def __init__(self, model, sample_inputs=None):
        self._model = model
        self._paths = {id(x): path for path, x in layer_paths(model).items()}
        # Inputs, with the model's outputs and the variables read.
        self._runs = []
        given = sample_inputs is not None
        try:
            sizes = (
                [[_few(model, sample_inputs)]] if given else _candidates(model)
            )
        except Exception as error:
            return _warn_not_compared(error)
        problem = None
        for samples in sizes:
            for sample in samples:
                try:
                    self._runs.append((sample, *_run(model, sample)))
                    break
                except Exception as error:
                    problem = problem or error
        if self._runs:
            return None
        if given:
            raise ValueError(
                "`sample_inputs` must be inputs that the model takes. Received "
                f"this error: {on_one_line(problem)[:300]}"
            ) from problem
        return _warn_not_compared(problem)

    def compare(self, copy):
        """Raises if a copy computes another function."""
        for sample, outputs, _ in self._runs:
            got, _ = _run_copy(copy, sample)
            if all_same(outputs, got):
                continue
            if not all_same(outputs, _run(self._model, sample)[0]):
                _warn_not_compared("Outputs differ from call to call.")
                continue
            raise ValueError(
                "The copy must return the same outputs as the model: a layer's "
                "config, variables and saved state must define it. "
                f"Received: different outputs{self._find_difference(copy)}."
            )

    def check_reads(self, copy, exchanges, replaced):
        """Raises if a copy reads replaced layers, or the model."""
        for sample, _, reads in self._runs[:1]:
            _, now = _run_copy(copy, sample)
            for (old, new), there in zip(exchanges, replaced, strict=True):
                if not isinstance(old, keras.layers.Layer):
                    continue
                was_read, *others = [
                    any(id(x) in each for x in layer.variables)
                    for layer, each in ((old, reads), (new, now), (there, now))
                ]
                if was_read and old.variables and others != [True, False]:
                    raise ValueError(
                        f"The layer {self._paths[id(old)]!r} cannot be "
                        "replaced: a function or an object that Keras does not "
                        "track also uses it. Use it as an attribute of a "
                        "layer."
                    )
            for variable in self._model.variables:
                if id(variable) in now:
                    raise ValueError(
                        "The copy would read the variable "
                        f"{variable.path!r} of the model: a function or graph "
                        "constant has it. Read it in a layer with the "
                        "variable's layer as an attribute and in its config."
                    )

    def _find_difference(self, copy):
        """Text on the first layer with different settings in a copy."""
        for layer, new in layer_pairs(self._model, copy):
            for name, value in vars(layer).items():
                if name.startswith("_") or not isinstance(value, _PLAIN):
                    continue
                if getattr(new, name, None) != value:
                    return (
                        f": the layer {self._paths[id(layer)]!r} "
                        f"({type(layer).__name__}) has {name}={value!r}, and "
                        f"in the copy {name}={getattr(new, name, None)!r}"
                    )
        return ""


def _few(model, inputs):
    """The first examples, if the model takes batches of any size."""
    parts = keras.tree.flatten(inputs)
    takes_any = is_open(model) and all(x.shape[0] is None for x in model.inputs)
    if takes_any and all(isinstance(x, (np.ndarray, tf.Tensor)) for x in parts):
        return keras.tree.map_structure(lambda x: x[:_MOST_EXAMPLES], inputs)
    return inputs


def made_up_inputs(model):
    """A list of random inputs that a model may take."""
    return [next(samples) for samples in _candidates(model)]


def _candidates(model):
    """Two iterators of random inputs, to try one after another."""
    inputs = _inputs_of(model)
    signature = keras.tree.map_structure(
        lambda x: tf.TensorSpec(
            x.shape, "int32" if x.dtype == "string" else x.dtype
        ),
        inputs,
    )
    words = []
    for layer in all_layers(model):
        if hasattr(layer, "get_vocabulary"):
            words += [str(word) for word in layer.get_vocabulary() if word]
    words = np.array(words or ["a", "b c", "1"], object)

    def finish(sample, length=1, is_padded=False):
        def each(spec, array):
            if is_padded and array.dtype.kind in "iu" and array.ndim:
                array[..., 3 * array.shape[-1] // 4 :] = 0
            if spec.dtype != "string":
                return array
            places = np.arange(length) + array[..., None]
            texts = words[places % len(words)].reshape(-1, length)
            texts = [" ".join(text) for text in texts]
            return np.array(texts, object).reshape(array.shape)

        return keras.tree.map_structure(each, inputs, sample)

    first, second = random_inputs(model, signature)
    length = _TEXT_LENGTH if _takes_texts(model) else 1
    return map(finish, first), (finish(x, length, True) for x in second)


def _inputs_of(model):
    """The structure of a model's inputs, with shapes and dtypes."""
    if hasattr(model, "operations"):
        return model.input
    if getattr(model, "inputs", None):
        return model.inputs[0]
    config = model.get_build_config() or {}
    if "input_shape" not in config:
        raise ValueError(
            f"The inputs of the {type(model).__name__} {model.name!r} are "
            "unknown."
        )
    # Subclassed models give no dtype. With tables, they take ids or texts.
    dtype = "string" if _takes_texts(model) else "int32"
    return keras.tree.map_shape_structure(
        lambda shape: tf.TensorSpec(shape, dtype), config["input_shape"]
    )


def _takes_texts(model):
    # Lookups take words; tokenizers split texts.
    lookups = (keras.layers.StringLookup, keras.layers.IntegerLookup)
    return any(
        hasattr(layer, "get_vocabulary") and not isinstance(layer, lookups)
        for layer in all_layers(model)
    )


def _run(model, sample):
    """Output arrays of a model, and the `id`s of variables it reads."""
    with _Reads() as scope:
        outputs = arrays_of(model(sample, training=False))
    return outputs, scope.reads


def _run_copy(copy, sample):
    try:
        return _run(copy, sample)
    except Exception as error:
        raise ValueError(
            "The copy must take the same inputs as the model. Received "
            f"this error: {on_one_line(error)[:300]}"
        ) from error


class _Reads(keras.StatelessScope):
    """Records which variables are read; assignments are dropped."""

    def __init__(self):
        super().__init__()
        self.reads = set()

    def get_current_value(self, variable):
        self.reads.add(id(variable))
        return super().get_current_value(variable)


def all_same(expected, got):
    return len(expected) == len(got) and all(map(_is_same, expected, got))


def _is_same(expected, got):
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return False
    if expected.dtype.kind in "OSUbiu" or not expected.size:
        return np.array_equal(expected, got)
    half = expected.dtype.itemsize < 4
    if half:
        expected, got = expected.astype("float32"), got.astype("float32")
    finite = np.abs(expected[np.isfinite(expected)])
    scale = np.max(finite, initial=0.0)
    tolerance = _HALF_TOLERANCE if half else _TOLERANCE
    return np.allclose(
        got, expected, rtol=0, atol=tolerance * scale, equal_nan=True
    )


def arrays_of(outputs):
    return [
        tensor.numpy()
        for tensor in tf.nest.flatten(outputs, expand_composites=True)
        # Tensors in traced functions have no values.
        if tf.is_tensor(tensor) and hasattr(tensor, "numpy")
    ]


def _warn_not_compared(problem):
    warnings.warn(
        "The copy was not compared with the model, which does not run on "
        "random inputs: pass `sample_inputs`. "
        f"Received this error: {on_one_line(problem)[:300]}",
        stacklevel=4,
    )


def random_inputs(model, signature):
    """Yields iterables of random inputs, for two sizes."""
    rng = np.random.default_rng(0)
    # The number of ids that all embeddings have.
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


def _embeddings(model):
    return [
        layer
        for layer in all_layers(model)
        if isinstance(getattr(layer, "input_dim", None), int)
    ]


def num_ids_of_inputs(model, default):
    """The number of ids of each input that goes to embeddings."""
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
    # sqrtn takes no negative weights.
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
