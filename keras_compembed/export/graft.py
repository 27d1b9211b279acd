"""Puts the graph of one LiteRT file in front of that of another."""

import numpy as np

from keras_compembed.export.flatbuffer import get_min_runtime
from keras_compembed.export.flatbuffer import raise_min_runtime


def graft(front, back):
    """Makes `back` begin with what `front` computes, in place."""
    (graph,) = front.subgraphs
    (output,) = graph.outputs
    target = back.subgraphs[0]
    (target_input,) = target.inputs
    # The first buffer is the empty one, in every file.
    first = len(back.buffers) - 1
    for tensor in graph.tensors:
        if tensor.buffer:
            tensor.buffer += first
    back.buffers += front.buffers[1:]
    codes = len(back.operatorCodes)
    back.operatorCodes += front.operatorCodes
    # The output is written to where the ids came from.
    first = len(target.tensors)
    places = {index: first + index for index in range(len(graph.tensors))}
    places |= {int(output): int(target_input), -1: -1}
    target.tensors += graph.tensors
    for op in graph.operators:
        op.opcodeIndex += codes
        op.inputs = _moved(op.inputs, places)
        op.outputs = _moved(op.outputs, places)
        if op.intermediates is not None:
            op.intermediates = _moved(op.intermediates, places)
    target.operators = graph.operators + target.operators
    target.inputs = _moved(graph.inputs, places)
    (front_signature,), (signature,) = front.signatureDefs, back.signatureDefs
    signature.inputs = front_signature.inputs
    for entry in signature.inputs:
        entry.tensorIndex = places[entry.tensorIndex]
    oldest = get_min_runtime(front)
    if oldest is not None:
        raise_min_runtime(back, oldest)


def _moved(indices, places):
    return np.array([places[int(index)] for index in indices], dtype="int32")
