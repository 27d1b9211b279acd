"""One-hot rows of subcodes, as a constant that a LiteRT file gathers from."""

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from keras_compembed.export.flatbuffer import drop_unused
from keras_compembed.export.flatbuffer import find_opcode
from keras_compembed.export.flatbuffer import list_readers
from keras_compembed.export.flatbuffer import name_op
from keras_compembed.export.flatbuffer import replace_tensor

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
        self._is_packed = options.serves(UNPACK_RUNTIME)

    def __call__(self, numbers):
        """Rows `(..., together * codebook_size)` of int32 numbers."""
        if not self._is_packed:
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
    found = [
        (graph, index)
        for graph in model.subgraphs
        for index, tensor in enumerate(graph.tensors)
        if any(_is_table(model, tensor, table) for table in tables)
    ]
    packed = {}
    for graph, index in found:
        _unpack_once(model, graph, index)
        tensor = graph.tensors[index]
        tensor.type = schema.TensorType.INT4
        tensor.name = b"one_hot_rows"
        quantization = schema.QuantizationParametersT()
        quantization.scale = np.ones(1, dtype="float32")
        quantization.zeroPoint = np.zeros(1, dtype="int64")
        tensor.quantization = quantization
        # Other tensors may share the buffer: of any type, by equal bytes.
        old = tensor.buffer
        if old not in packed:
            packed[old] = len(model.buffers)
            model.buffers.append(_pack(model.buffers[old]))
        tensor.buffer = packed[old]
    drop_unused(model)
    return bool(found)


def _pack(buffer):
    """A buffer of int4 with the int8 numbers of another."""
    numbers = np.asarray(buffer.data, "uint8")
    numbers = np.pad(numbers, (0, len(numbers) % 2))
    packed = schema.BufferT()
    packed.data = numbers[0::2] | numbers[1::2] << 4
    return packed


def _is_table(model, tensor, table):
    data = model.buffers[tensor.buffer].data
    return (
        data is not None
        and tensor.type == schema.TensorType.INT8
        and tensor.shape is not None
        and tuple(tensor.shape) == table.shape
        and np.array_equal(data, table.view("uint8").reshape(-1))
    )


def _unpack_once(model, graph, index):
    unpacked = schema.TensorT()
    unpacked.type = schema.TensorType.FLOAT32
    unpacked.shape = graph.tensors[index].shape
    unpacked.shapeSignature = graph.tensors[index].shapeSignature
    unpacked.buffer = len(model.buffers)
    unpacked.name = b"one_hot_rows_as_floats"
    model.buffers.append(schema.BufferT())
    place = len(graph.tensors)
    graph.tensors.append(unpacked)
    for gather in list_readers(graph, index):
        output = gather.outputs[0]
        casts = list_readers(graph, output)
        if (
            name_op(model, gather) != "GATHER"
            or gather.inputs[0] != index
            or any(name_op(model, cast) != "CAST" for cast in casts)
        ):
            raise RuntimeError(
                "One-hot rows must be read by GATHER and CAST. Received: "
                f"{name_op(model, gather)}, followed by "
                f"{[name_op(model, cast) for cast in casts]}. Please report "
                "this with the model."
            )
        gather.inputs = np.array([place, gather.inputs[1]], dtype="int32")
        graph.tensors[output].type = schema.TensorType.FLOAT32
        for cast in casts:
            replace_tensor(model, graph, cast.outputs[0], output)
            graph.operators.remove(cast)
    operator = schema.OperatorT()
    operator.opcodeIndex = find_opcode(
        model, schema.BuiltinOperator.DEQUANTIZE, _DEQUANTIZE_VERSION
    )
    operator.inputs = np.array([index], dtype="int32")
    operator.outputs = np.array([place], dtype="int32")
    operator.builtinOptionsType = schema.BuiltinOptions.DequantizeOptions
    operator.builtinOptions = schema.DequantizeOptionsT()
    graph.operators.insert(0, operator)
