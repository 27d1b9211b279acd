"""Compares look-ups in a LiteRT file with the layers that they come from."""

import math
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.check import largest_of
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.marks import cut_out
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.litert.flatbuffer import schema
from keras_compembed.litert.flatbuffer import write_model

# Rows at a time, and numbers held for them.
_ROWS = 4096
_NUMBERS = 1 << 24
# Vectors that logits are compared for. One random vector would tell rows
# apart.
_VECTORS = 4
# Ids in a text of open length.
_TEXT = 64


def check_rows(content, lookups, passages, lost, quantize, tolerance):
    """The largest error of rows, and names of layers held to Keras or not."""
    model = read_model(content)
    errors, held, not_held = [], {}, {}
    for lookup in lookups:
        if not lookup.calls:
            continue
        parts, name = [], lookup.layer.name
        if not lookup.has_other_inputs:
            parts = _different_parts(model, passages, lookup.number)
        if not parts or lookup.number in lost or lookup.has_constants:
            not_held[name] = None
        if not parts:
            continue
        held[name] = None
        errors.append(_check_lookup(lookup, parts, quantize, tolerance))
    held = tuple(name for name in held if name not in not_held)
    return max(errors, default=None), held, tuple(not_held)


def _different_parts(model, passages, number):
    """Models cut out for a look-up; those that are the same only once."""
    parts = {}
    for of_lookup, *passage in passages:
        if of_lookup == number:
            part = cut_out(model, *passage)
            if part is None:
                return []
            parts.setdefault(_key(part), part)
    return list(parts.values())


def _key(part):
    """What is the same in models that do the same with the same buffers."""
    buffers = part.buffers
    part.buffers = [schema.BufferT() for _ in buffers]
    for short, buffer in zip(part.buffers, buffers, strict=True):
        if buffer.data is not None:
            short.data = np.array([id(buffer)]).view("uint8")
    key = bytes(write_model(part))
    part.buffers = buffers
    return key


def _check_lookup(lookup, parts, quantize, tolerance):
    """The largest difference over the largest number of the table."""
    layer = lookup.layer
    threads = os.cpu_count() if layer.input_dim > _ROWS else 1
    has_ids = lookup.method == "embed" or (
        lookup.method == "texts" and lookup.texts.window == 0
    )
    worst, largest, worst_id = 0.0, 0.0, None
    with tempfile.TemporaryDirectory() as folder:
        functions = [
            _CutFunction(
                part,
                os.path.join(folder, f"{place}.tflite"),
                0 if has_ids else 1,
                threads,
            )
            for place, part in enumerate(parts)
        ]
        cases = {"embed": _rows, "texts": _texts}.get(lookup.method, _logits)
        for ids, got, expected in cases(lookup, functions):
            largest = max(largest, largest_of(expected))
            differences = _differences(got, expected)
            place = np.argmax(differences)
            if differences[place] > worst:
                worst, worst_id = differences[place], ids[place]
    allowed = lookup.form.tolerance(lookup.method, quantize, largest)
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


def _rows(lookup, functions):
    """Yields ids, their rows in the file and their rows in Keras."""
    layer, numbers = lookup.layer, lookup.form.numbers_per_row
    ids = lookup.form.ids_to_compare([x.constants for x in functions])
    size = max(1, min(_ROWS, _NUMBERS // numbers))
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        expected = keras.ops.convert_to_numpy(layer.embed(tf.constant(part)))
        expected = expected.astype("float32", copy=False)
        for function in functions:
            yield part, function(part), expected


def _texts(lookup, functions):
    """Same, with what is made of texts that hold all ids in place of rows."""
    texts = lookup.texts
    every = np.arange(lookup.layer.input_dim, dtype="int32")
    for function in functions:
        # As many numbers as the vectors of these ids take.
        number = max(1, _NUMBERS // (8 * lookup.layer.output_dim))
        number = min(number, _ROWS)
        length, per_text = _text_shape(texts, function.length)
        number = max(1, number // length) * per_text
        for start in range(0, len(every), number):
            ids = every[start : start + number]
            array = _lay_out(ids, texts, length, per_text)
            expected = texts.reference(tf.constant(array))
            expected = keras.ops.convert_to_numpy(expected)
            yield (
                array.reshape(len(array), -1)[:, 0],
                function(array),
                expected.reshape(len(array), -1),
            )


def _text_shape(texts, length):
    """The length of texts, and how many ids one is for."""
    if not texts.window:
        return 1 if texts.window == 0 else max(1, length), 1
    if length < 0:
        length = _TEXT * texts.step + texts.window - 1
    return length, max(1, (length - texts.window + 1) // texts.step)


def _lay_out(ids, texts, length, per_text):
    """An array of texts that hold all of some ids, or of ids alone."""
    if texts.window == 0:
        return ids
    ids = np.pad(ids, (0, -len(ids) % per_text), "edge")
    ids = ids.reshape(-1, per_text)
    if texts.window is None:
        return np.repeat(ids, length, axis=1)
    # Each id begins a window.
    ids = np.repeat(ids, texts.step, axis=1)[:, :length]
    return np.pad(ids, ((0, 0), (0, length - ids.shape[1])), "edge")


def _logits(lookup, functions):
    """Same, with products of each row with some vectors in place of it."""
    layer, rng = lookup.layer, np.random.default_rng(0)
    vectors = rng.normal(size=(_VECTORS, layer.output_dim)).astype("float32")
    expected = keras.ops.convert_to_numpy(
        getattr(layer, lookup.method)(tf.constant(vectors))
    )
    for function in functions:
        ids = np.arange(layer.input_dim)
        yield ids, function(vectors).T, expected.astype("float32").T


def _differences(got, expected):
    """The largest difference of each row; infinite if a number is missing."""
    with np.errstate(invalid="ignore"):
        differences = np.abs(got - expected)
    if not np.isfinite(np.sum(differences)):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        differences[same] = 0
        differences[~np.isfinite(differences)] = np.inf
    return differences.max(axis=1, initial=0.0)


class _CutFunction:
    """A cut-out model as a function of items one after another."""

    def __init__(self, part, path, item_rank, num_threads):
        graph = part.subgraphs[0]
        tensor = graph.tensors[graph.inputs[0]]
        shape = tensor.shape
        if tensor.shapeSignature is not None:
            shape = tensor.shapeSignature
        rank = len(shape) - item_rank
        self._leading = [int(size) for size in shape[:rank]]
        self.constants = [x.data for x in part.buffers if x.data is not None]
        self.length = int(shape[-1]) if len(shape) else 1
        with open(path, "wb") as file:
            file.write(write_model(part))
        self._model = LiteRTModel(path, num_threads)

    def __call__(self, items):
        leading = list(self._leading)
        if -1 in leading:
            known = math.prod(size for size in leading if size >= 0)
            leading[leading.index(-1)] = -(-len(items) // known)
            leading = [max(1, size) for size in leading]
        size = math.prod(leading)
        outputs = []
        for start in range(0, len(items), size):
            part = items[start : start + size]
            missing = size - len(part)
            if missing:
                part = np.concatenate([part, np.repeat(part[-1:], missing, 0)])
            shape = (*leading, *items.shape[1:])
            output = self._model(np.reshape(part, shape))
            outputs.append(np.reshape(output, (size, -1))[: size - missing])
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)
