"""Matrices of a converted file made int8, and the rest left as it is."""

import copy

import numpy as np

from keras_compembed.litert.flatbuffer import add_buffer
from keras_compembed.litert.flatbuffer import find_constants
from keras_compembed.litert.flatbuffer import find_opcode
from keras_compembed.litert.flatbuffer import list_readers
from keras_compembed.litert.flatbuffer import make_dequantize
from keras_compembed.litert.flatbuffer import name_op
from keras_compembed.litert.flatbuffer import raise_min_runtime
from keras_compembed.litert.flatbuffer import schema
from keras_compembed.litert.flatbuffer import set_integers

_PRODUCT = schema.BuiltinOperator.FULLY_CONNECTED
# Versions of ops that read int8, and the runtime that has the last of them.
_GATHER_VERSION = 2
_DEQUANTIZE_VERSION = 2
_PRODUCT_VERSION = 12
_PRODUCT_RUNTIME = (2, 17, 0)
_GATHER_RUNTIME = (1, 14, 0)


def quantize_matrices(model, matrices):
    """Makes matrices int8, wherever ops read them that can, in place."""
    wanted = [
        np.ascontiguousarray(form, dtype="float32")
        for matrix in matrices
        for form in (matrix, matrix.T)
    ]
    buffers = {}
    for graph, index, place in find_constants(model, wanted):
        readers = list_readers(graph, index)
        kinds = {
            (name_op(model, op), list(op.inputs).index(index)) for op in readers
        }
        is_product = kinds == {("FULLY_CONNECTED", 1)}
        if not is_product and kinds != {("GATHER", 0)}:
            continue
        tensor = graph.tensors[index]
        # Matrices of other shapes may have the same bytes.
        key = tensor.buffer, tuple(tensor.shape), is_product
        if key not in buffers:
            values, scales = _round_to_int8(wanted[place], is_product)
            data = values.reshape(-1).view("uint8")
            buffers[key] = add_buffer(model, data), scales
        tensor.buffer, scales = buffers[key]
        set_integers(tensor, schema.TensorType.INT8, scales)
        for op in readers:
            if is_product:
                op.opcodeIndex = find_opcode(model, _PRODUCT, _PRODUCT_VERSION)
                op.builtinOptions.asymmetricQuantizeInputs = True
            else:
                _make_float_again(model, graph, op, scales)
        raise_min_runtime(
            model, _PRODUCT_RUNTIME if is_product else _GATHER_RUNTIME
        )


def _round_to_int8(values, by_row):
    """Whole numbers up to 127, and the steps that they are multiples of."""
    along = 1 if by_row else None
    largest = np.abs(values).max(axis=along, initial=0.0, keepdims=True)
    scales = (np.where(largest > 0, largest, 127) / 127).astype("float32")
    rounded = np.clip(np.rint(values / scales), -127, 127)
    return rounded.astype("int8"), scales.reshape(-1)


def _make_float_again(model, graph, gather, scales):
    """Puts a DEQUANTIZE behind a GATHER."""
    gather.opcodeIndex = find_opcode(
        model, schema.BuiltinOperator.GATHER, _GATHER_VERSION
    )
    (output,) = gather.outputs
    rows = copy.copy(graph.tensors[output])
    rows.name = rows.name + b"_int8"
    set_integers(rows, schema.TensorType.INT8, scales)
    graph.tensors.append(rows)
    source = len(graph.tensors) - 1
    gather.outputs = np.array([source], dtype="int32")
    op = make_dequantize(model, _DEQUANTIZE_VERSION, source, output)
    graph.operators.insert(graph.operators.index(gather) + 1, op)
