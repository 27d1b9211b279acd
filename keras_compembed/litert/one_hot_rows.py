"""One-hot rows of subcodes, as a constant that a LiteRT file gathers from."""

import numpy as np
import tensorflow as tf

from keras_compembed.litert.flatbuffer import add_buffer
from keras_compembed.litert.flatbuffer import drop_unused
from keras_compembed.litert.flatbuffer import find_constants
from keras_compembed.litert.flatbuffer import gathers_of_floats
from keras_compembed.litert.flatbuffer import make_dequantize
from keras_compembed.litert.flatbuffer import raise_min_runtime
from keras_compembed.litert.flatbuffer import schema
from keras_compembed.litert.flatbuffer import set_integers

# Version of DEQUANTIZE that reads tables of int4, and a runtime that has it.
_DEQUANTIZE_VERSION = 6
UNPACK_RUNTIME = (2, 18, 0)


class OneHotRows:
    """A table of the one-hot rows that numbers stand for."""

    def __init__(self, codebook_size, together, options):
        digits = split_digits(codebook_size, together)
        one_hot = digits[:, :, None] == np.arange(codebook_size)
        rows = one_hot.reshape(len(digits), -1)
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
        self.table = rows.astype("int8")
        self.zeros = len(digits)
        self._options = options

    def __call__(self, numbers):
        """Rows `(..., together * codebook_size)` of int32 numbers."""
        if not self._options.serves(UNPACK_RUNTIME):
            return tf.gather(self.table.astype("float32"), numbers)
        self._options.unpacked.append(self.table)
        return tf.cast(tf.gather(self.table, numbers), tf.float32)


def one_hot_bytes(codebook_size, together):
    """Bytes that a table of one-hot rows takes in int4."""
    numbers = codebook_size if together == 1 else 256
    return -(-(numbers + 1) * together * codebook_size // 2)


def split_digits(codebook_size, together):
    """Digits `(values, together)` of all numbers, the lowest first."""
    if together == 1:
        return np.arange(codebook_size, dtype="int32")[:, None]
    base = 1 << (8 // together)
    values = np.arange(base**together, dtype="int32")[:, None]
    return values // base ** np.arange(together, dtype="int32") % base


def unpack_once(model, tables):
    """Makes the runtime turn tables into floats when it loads a file."""
    found, packed = find_constants(model, tables), {}
    for graph, index, _ in found:
        tensor = graph.tensors[index]
        unpacked = schema.TensorT()
        unpacked.type = schema.TensorType.FLOAT32
        unpacked.shape = tensor.shape
        unpacked.shapeSignature = tensor.shapeSignature
        unpacked.buffer = add_buffer(model)
        unpacked.name = b"one_hot_rows_as_floats"
        place = len(graph.tensors)
        graph.tensors.append(unpacked)
        for gather in gathers_of_floats(model, graph, index, max_rank=8):
            gather.inputs = np.array([place, gather.inputs[1]], dtype="int32")
        operator = make_dequantize(model, _DEQUANTIZE_VERSION, index, place)
        graph.operators.insert(0, operator)
        tensor.name = b"one_hot_rows"
        set_integers(
            tensor, schema.TensorType.INT4, np.ones(1, dtype="float32")
        )
        # Other tensors may share the buffer: of any type, by equal bytes.
        old = tensor.buffer
        if old not in packed:
            numbers = np.asarray(model.buffers[old].data, "uint8")
            numbers = np.pad(numbers, (0, len(numbers) % 2))
            packed[old] = add_buffer(model, numbers[0::2] | numbers[1::2] << 4)
        tensor.buffer = packed[old]
    drop_unused(model)
    if found:
        raise_min_runtime(model, UNPACK_RUNTIME)
