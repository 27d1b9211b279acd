"""Matrices of a converted file made int8, and the rest left as it is."""

import copy

import numpy as np

from keras_compembed.export.flatbuffer import add_buffer
from keras_compembed.export.flatbuffer import find_constants
from keras_compembed.export.flatbuffer import find_opcode
from keras_compembed.export.flatbuffer import list_readers
from keras_compembed.export.flatbuffer import make_dequantize
from keras_compembed.export.flatbuffer import name_op
from keras_compembed.export.flatbuffer import raise_min_runtime
from keras_compembed.export.flatbuffer import schema
from keras_compembed.export.flatbuffer import set_integers

# Versions of ops that read int8, and the runtime that has the last of them.
_GATHER_VERSION = 2
_DEQUANTIZE_VERSION = 2
_PRODUCT_VERSION = 12
PRODUCT_RUNTIME = (2, 17, 0)
GATHER_RUNTIME = (1, 14, 0)


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
        if kinds == {("FULLY_CONNECTED", 1)}:
            axis = 0
            for op in readers:
                _read_int8_weights(model, op)
        elif kinds == {("GATHER", 0)}:
            axis = None
        else:
            continue
        tensor = graph.tensors[index]
        # Matrices of other shapes may have the same bytes.
        key = tensor.buffer, tuple(tensor.shape), axis
        if key not in buffers:
            values, scales = round_to_int8(wanted[place], axis)
            data = values.reshape(-1).view("uint8")
            buffers[key] = add_buffer(model, data), scales
        tensor.buffer, scales = buffers[key]
        set_integers(tensor, schema.TensorType.INT8, scales)
        if axis is None:
            for op in readers:
                _make_float_again(model, graph, op, scales)
            raise_min_runtime(model, GATHER_RUNTIME)
        else:
            raise_min_runtime(model, PRODUCT_RUNTIME)


def round_to_int8(values, axis=None):
    """Whole numbers up to 127, and the steps that they are multiples of."""
    along = None if axis is None else 1 - axis
    largest = np.abs(values).max(axis=along, initial=0.0, keepdims=True)
    scales = (np.where(largest > 0, largest, 127) / 127).astype("float32")
    rounded = np.clip(np.rint(values / scales), -127, 127)
    return rounded.astype("int8"), scales.reshape(-1)


def _read_int8_weights(model, op):
    op.opcodeIndex = find_opcode(
        model, schema.BuiltinOperator.FULLY_CONNECTED, _PRODUCT_VERSION
    )
    op.builtinOptions.asymmetricQuantizeInputs = True


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
    place = next(x for x, each in enumerate(graph.operators) if each is gather)
    graph.operators.insert(place + 1, op)
