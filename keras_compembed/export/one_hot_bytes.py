"""One-hot vectors of all subcodes in a byte of packed codes."""

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from keras_compembed.export.flatbuffer import drop_unused
from keras_compembed.export.flatbuffer import find_opcode
from keras_compembed.export.flatbuffer import list_readers
from keras_compembed.export.flatbuffer import name_op
from keras_compembed.export.flatbuffer import replace_tensor
from keras_compembed.export.row_graphs import split_digits

_BITS = 4
# Version of DEQUANTIZE that reads such tables, and a runtime that has it.
_DEQUANTIZE_VERSION = 6
UNPACK_RUNTIME = (2, 18, 0)


class OneHotBytes:
    """A table of what each byte of packed codes stands for.

    Row b holds the one-hot vectors, side by side, of the subcodes that byte b
    holds; a last row of zeros is for ids that do not count. As the table is
    the same for all layers with codebooks of one size, so is its constant.

    Args:
        codebook_size: Integer, values that a subcode may have.
        per_byte: Integer, subcodes in a byte: 2, 4 or 8.

    Attributes:
        table: int8 array `(257, subcodes * codebook_size)`.
    """

    # Bytes in a file, at most.
    NBYTES = 257 * 2 * 16 * _BITS // 8

    def __init__(self, codebook_size, per_byte):
        digits = split_digits(codebook_size, per_byte)
        one_hot = digits[:, :, None] == np.arange(codebook_size)
        rows = one_hot.reshape(256, -1)
        self.table = np.concatenate([rows, np.zeros_like(rows[:1])])
        self.table = self.table.astype("int8")

    @property
    def zeros(self):
        """The byte that stands for nothing."""
        return 256

    def __call__(self, stored):
        """One-hot vectors `(..., subcodes * codebook_size)` of int32 bytes."""
        return tf.cast(tf.gather(self.table, stored), tf.float32)


def unpack_once(model, tables):
    """Makes the runtime turn tables into floats when it loads a file.

    Each `CAST(GATHER(int8 table, places))` becomes
    `GATHER(DEQUANTIZE(int4 table), places)`: what is made of a constant alone
    is made once.

    Args:
        model: Object from `read_model`.
        tables: List of int8 arrays of small numbers.

    Returns:
        Boolean, whether there was any.
    """
    found = [
        (graph, index, table)
        for graph in model.subgraphs
        for index, tensor in enumerate(graph.tensors)
        # Layers with codebooks of one size have equal tables.
        for table in [x for x in tables if _is_table(model, tensor, x)][:1]
    ]
    for graph, index, _ in found:
        _unpack_once(model, graph, index)
    for graph, index, table in found:
        tensor = graph.tensors[index]
        tensor.type = schema.TensorType.INT4
        tensor.name = b"one_hot_bytes"
        quantization = schema.QuantizationParametersT()
        quantization.scale = np.ones(1, dtype="float32")
        quantization.zeroPoint = np.zeros(1, dtype="int64")
        tensor.quantization = quantization
        flat = np.pad(table.reshape(-1), (0, table.size % 2)).astype("uint8")
        model.buffers[tensor.buffer].data = flat[0::2] | flat[1::2] << 4
    drop_unused(model)
    return bool(found)


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
    unpacked.name = b"one_hot_bytes_as_floats"
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
                "Bytes of codes must be read by GATHER and CAST. Received: "
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
