"""Compares a copy of a model with the model."""

import contextlib
import functools
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.check import random_inputs
from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.swapped import swapped
from keras_compembed.utils.validation import on_one_line

# Largest difference allowed, over the largest value: the same ops on the same
# numbers, but threads may add up in another order.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 1e-2
# Words of the texts that models are compared on.
_TEXT_LENGTH = 16


def check_copy(model, copy, pairs, sample_inputs=None, resumed=()):
    """Raises if a copy of a model is not the same function."""
    inputs = keras.layers.InputLayer
    pairs = [pair for pair in pairs if not isinstance(pair[0], inputs)]
    resumed = {id(old) for old in resumed}
    kept = [i for i, (old, _) in enumerate(pairs) if id(old) in resumed]
    given = sample_inputs is not None
    try:
        sizes = [[sample_inputs]] if given else _candidates(model)
    except Exception as error:
        return _warn_not_compared(error)
    compared, problem = 0, None
    for samples in sizes:
        for sample in samples:
            try:
                expected = _Run(model, [old for old, _ in pairs], sample, kept)
            except Exception as error:
                problem = problem or error
                continue
            compared += 1
            _check_sample(model, copy, pairs, sample, expected)
            break
    if compared:
        return None
    if given:
        raise ValueError(
            "`sample_inputs` must be inputs that the model takes. Received "
            f"from the model: {on_one_line(problem)[:300]}"
        ) from problem
    return _warn_not_compared(problem)


def made_up_inputs(model):
    """A list of structures of random arrays that a model may take."""
    return [next(samples) for samples in _candidates(model)]


def _candidates(model):
    """Two iterators of such samples, to be tried one after another."""
    inputs = _inputs_of(model)
    signature = keras.tree.map_structure(
        lambda x: tf.TensorSpec(
            x.shape, "int32" if x.dtype == "string" else x.dtype
        ),
        inputs,
    )
    words = _words(model)

    def finish(spec, array, length):
        if spec.dtype != "string":
            return array
        places = np.arange(length) + array[..., None]
        texts = [
            " ".join(x) for x in words[places % len(words)].reshape(-1, length)
        ]
        return np.array(texts, object).reshape(array.shape)

    def pad(array):
        if array.dtype.kind in "iu" and array.ndim:
            array[..., 3 * array.shape[-1] // 4 :] = 0
        return array

    def finished(sample, length):
        return keras.tree.map_structure(
            functools.partial(finish, length=length), inputs, sample
        )

    first, second = random_inputs(model, signature)
    length = _TEXT_LENGTH if _takes_texts(model) else 1
    return (
        (finished(sample, 1) for sample in first),
        (
            finished(keras.tree.map_structure(pad, sample), length)
            for sample in second
        ),
    )


def _inputs_of(model):
    """The structure of the inputs of a model, with shapes and dtypes."""
    if hasattr(model, "operations"):
        return model.input
    if getattr(model, "inputs", None):
        return model.inputs[0]
    config = model.get_build_config() or {}
    if "input_shape" not in config:
        raise ValueError(
            f"The {type(model).__name__} {model.name!r} does not say what its "
            "one argument of inputs is."
        )
    # Of dtypes subclassed models say nothing. Those with tables take ids, or
    # texts.
    dtype = "string" if _takes_texts(model) else "int32"
    return keras.tree.map_shape_structure(
        lambda shape: tf.TensorSpec(shape, dtype), config["input_shape"]
    )


def _takes_texts(model):
    # A lookup knows words only, tokenizers find them in texts.
    lookups = (keras.layers.StringLookup, keras.layers.IntegerLookup)
    return any(
        hasattr(layer, "get_vocabulary") and not isinstance(layer, lookups)
        for layer in model._flatten_layers()
    )


def _words(model):
    words = []
    for layer in model._flatten_layers():
        if hasattr(layer, "get_vocabulary"):
            words += [str(word) for word in layer.get_vocabulary() if word]
    return np.array(words or ["a", "b c", "1"], object)


class _Run:
    """One run of a model."""

    def __init__(self, model, layers, sample, kept=(), given=None):
        self.calls = []
        self.kept = {number: [] for number in kept}
        self._given = {number: iter(x) for number, x in (given or {}).items()}
        with _Reads() as reads, contextlib.ExitStack() as stack:
            for number, layer in enumerate(layers):
                stack.enter_context(self._recorded(number, layer, reads))
            self.outputs = arrays_of(model(sample, training=False))
        self.readers = reads.readers

    @contextlib.contextmanager
    def _recorded(self, number, layer, reads):
        # What Keras calls in place of `call` once a layer is quantized.
        quantized = getattr(layer, "quantization_mode", None) is not None
        name = "quantized_call" if quantized else "call"
        call = getattr(layer, name)

        @functools.wraps(call)
        def recorded(*args, **kwargs):
            before, reads.reader = reads.reader, layer
            try:
                outputs = call(*args, **kwargs)
            finally:
                reads.reader = before
            if number not in self.kept and number not in self._given:
                self.calls.append((number, arrays_of(outputs)))
                return outputs
            # Weights of more digits make keras-rs's layers give more, too.
            dtype = getattr(layer, "compute_dtype", outputs.dtype)
            cast = keras.ops.cast(outputs, dtype)
            self.calls.append((number, arrays_of(cast)))
            if number in self.kept:
                self.kept[number].append(outputs)
                return outputs
            return next(self._given[number], outputs)

        with swapped(layer, **{name: recorded}):
            yield


class _Reads(keras.StatelessScope):
    """Notes which variables are read; what is assigned is forgotten."""

    def __init__(self):
        super().__init__()
        self.reader = None
        self.readers = {}

    def get_current_value(self, variable):
        self.readers.setdefault(id(variable), self.reader)
        return super().get_current_value(variable)


def _check_sample(model, copy, pairs, sample, expected):
    try:
        layers = [new for _, new in pairs]
        got = _Run(copy, layers, sample, given=expected.kept)
    except Exception as error:
        raise ValueError(
            "The copy does not take inputs that the model takes. Received "
            f"from the copy: {on_one_line(error)[:300]}"
        ) from error
    paths = {id(layer): path for path, layer in layer_paths(model).items()}
    originals = {id(new): old for old, new in pairs}
    for variable in model.variables:
        if id(variable) in got.readers:
            layer = originals.get(id(got.readers[id(variable)]))
            reader = paths.get(id(layer), "an operation")
            raise ValueError(
                f"The copy would read the variable {variable.path!r} of the "
                f"model itself, in {reader!r}: a function or a constant of the "
                "graph holds it. Read it in a layer that has the variable's "
                "layer as an attribute, and in its config."
            )
    place = _first_difference(expected, got)
    if place is None:
        return
    again = _Run(model, [old for old, _ in pairs], sample)
    if _first_difference(expected, again) is not None:
        _warn_not_compared("It gives something else each time.")
        return
    where = "the outputs of the model"
    if place < len(expected.calls):
        layer = pairs[expected.calls[place][0]][0]
        # Operations have no path.
        path = paths.get(id(layer), layer.name)
        where = f"the layer {path!r} ({type(layer).__name__})"
    raise ValueError(
        "The copy differs from the model: on the same inputs, the first to "
        f"give something else is {where}. What defines it must be in its "
        "config, its variables, or what it saves."
    )


def _first_difference(expected, got):
    """The number of the first call that differs, or None."""
    for place, (number, arrays) in enumerate(expected.calls):
        if place >= len(got.calls) or got.calls[place][0] != number:
            return place
        if not all_same(arrays, got.calls[place][1]):
            return place
    if not all_same(expected.outputs, got.outputs):
        return len(expected.calls)
    return None


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
        # In functions that TensorFlow traces, tensors have no values.
        if tf.is_tensor(tensor) and hasattr(tensor, "numpy")
    ]


def _warn_not_compared(problem):
    warnings.warn(
        "The copy was not compared with the model, which cannot be run on "
        "random inputs. Pass `sample_inputs` that it takes. "
        f"Received from the model: {on_one_line(problem)[:300]}",
        stacklevel=4,
    )
