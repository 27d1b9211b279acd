"""Compares look-ups in a LiteRT file with the layers that they come from."""

import collections
import math
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.export.check import TOLERANCES
from keras_compembed.export.check import largest_of
from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.flatbuffer import schema
from keras_compembed.export.flatbuffer import write_model
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.marks import cut_out
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding

# Rows at a time, and numbers held for them.
_ROWS = 4096
_NUMBERS = 1 << 24
# Rows compared at least, spread over the table, where not all are.
_SPREAD = 1024
# Vectors that logits are compared for. One random vector would tell rows
# apart.
_VECTORS = 4
# A float16 is off by so much of itself, an int8 by so much of the largest.
_ROUNDING = {
    None: 0.0,
    "float16": 2.0**-11,
    "int8": 1 / 254,
    "int8_codebooks": 1 / 254,
}
_INT8 = ("int8", "int8_codebooks")
# Ids in a text of open length.
_TEXT = 64
# Half the least step of float16, and what a sum in float32 is off by.
_LEAST = 2.0**-25
_FLOAT32 = 2.0**-23


# What the look-ups in a file were found to give.
RowCheck = collections.namedtuple("RowCheck", ("max_error", "held", "not_held"))


def check_rows(content, lookups, passages, lost, quantize, tolerance=None):
    """Holds all look-ups of a file to Keras."""
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
    return RowCheck(
        max(errors, default=None),
        tuple(name for name in held if name not in not_held),
        tuple(not_held),
    )


def _different_parts(model, passages, number):
    """Models cut out for a look-up; those that are the same only once."""
    parts = {}
    for passage in passages:
        if passage.number == number:
            part = cut_out(model, passage)
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
        functions = []
        for place, part in enumerate(parts):
            path = os.path.join(folder, f"{place}.tflite")
            with open(path, "wb") as file:
                file.write(write_model(part))
            functions.append(
                _CutFunction(part, path, 0 if has_ids else 1, threads)
            )
        if lookup.method == "embed":
            cases = _rows(layer, _choose_ids(lookup, parts), functions)
        elif lookup.method == "texts":
            cases = _texts(lookup, functions)
        else:
            cases = _logits(layer, lookup.method, functions)
        for ids, got, expected in cases:
            largest = max(largest, largest_of(expected))
            differences = _differences(got, expected)
            place = np.argmax(differences)
            if differences[place] > worst:
                worst, worst_id = differences[place], ids[place]
    allowed = _allowed(lookup, quantize, largest)
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


def _choose_ids(lookup, parts):
    """All ids, or enough of them where rows take long to compose."""
    layer = lookup.layer
    every = np.arange(layer.input_dim, dtype="int32")
    if lookup.codes is None or not layer.composition.is_slow:
        return every
    codes = np.ascontiguousarray(lookup.codes).reshape(-1)
    for part in parts:
        if not any(
            buffer.data is not None and np.array_equal(buffer.data, codes)
            for buffer in part.buffers
        ):
            return every
    chosen = [every[:: max(1, len(every) // _SPREAD)]]
    for subcodes in layer.codes.T:
        chosen.append(np.unique(subcodes, return_index=True)[1])
    return np.unique(np.concatenate(chosen)).astype("int32")


def _rows(layer, ids, functions):
    """Yields ids, their rows in the file and their rows in Keras."""
    numbers = 8 * layer.output_dim
    if isinstance(layer, CodeEmbedding) and not layer.composition.is_linear:
        # Codewords, or what they give to the gates of an LSTM.
        numbers = 4 * layer.num_codebooks * layer.composition.code_dim
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
        if texts.window != 0:
            length, per_text = _text_shape(texts, function.length)
            number = max(1, number // length) * per_text
        for start in range(0, len(every), number):
            ids = every[start : start + number]
            if texts.window == 0:
                array = ids
            else:
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
    if texts.window is None:
        return max(1, length), 1
    if length < 0:
        length = _TEXT * texts.step + texts.window - 1
    return length, max(1, (length - texts.window + 1) // texts.step)


def _lay_out(ids, texts, length, per_text):
    """An array of texts that hold all of some ids."""
    ids = np.pad(ids, (0, -len(ids) % per_text), "edge")
    ids = ids.reshape(-1, per_text)
    if texts.window is None:
        return np.repeat(ids, length, axis=1)
    # Each id begins a window.
    ids = np.repeat(ids, texts.step, axis=1)[:, :length]
    return np.pad(ids, ((0, 0), (0, length - ids.shape[1])), "edge")


def _logits(layer, method, functions):
    """Same, with products of each row with some vectors in place of it."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(_VECTORS, layer.output_dim)).astype("float32")
    expected = keras.ops.convert_to_numpy(
        getattr(layer, method)(tf.constant(vectors))
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


def _allowed(lookup, quantize, largest):
    """How far a number may be off by arithmetic alone."""
    layer = lookup.layer
    if isinstance(layer, QuantizedEmbedding):
        return _allowed_of_rounded(lookup, quantize, largest)
    if lookup.method != "embed" or not isinstance(layer, CodeEmbedding):
        return TOLERANCES[quantize] * largest
    composition = layer.composition
    if not composition.is_linear or isinstance(
        composition.unscaled(), LinearComposition
    ):
        return TOLERANCES[quantize] * largest
    codebooks = composition.fold(tf.convert_to_tensor(layer.codebooks.value))
    # In units of a `ScaledComposition`, each part has an offset.
    is_plain = isinstance(composition, ConcatComposition)
    terms = 1 if is_plain else layer.num_codebooks + 1
    rounding = _ROUNDING[quantize] + (terms + 1) * _FLOAT32
    return terms * (float(largest_of(codebooks.numpy())) * rounding + _LEAST)


def _allowed_of_rounded(lookup, quantize, largest):
    """Same, of rows that are rounded: only a projection may be rounded more."""
    layer = lookup.layer
    if layer.projection is None:
        quantize = None
    allowed = TOLERANCES[quantize] * largest
    # Of int8 products, rows are rounded as well.
    if lookup.method != "embed" or quantize in _INT8:
        return allowed
    if layer.projection is None:
        return 4 * _FLOAT32 * largest
    table = layer.rounded_table()
    projection = keras.ops.convert_to_numpy(layer.projection)
    most = np.abs(table.decode()).max(axis=0) @ np.abs(projection)
    terms = layer.width + 4
    return most.max() * (_ROUNDING[quantize] + terms * _FLOAT32) + _LEAST


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
        self.length = int(shape[-1]) if len(shape) else 1
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
