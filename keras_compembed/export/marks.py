"""Marks in a traced model that locate look-ups in its file."""

import copy
import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.litert.flatbuffer import drop_unused
from keras_compembed.litert.flatbuffer import list_readers
from keras_compembed.litert.flatbuffer import name_op
from keras_compembed.litert.flatbuffer import name_type
from keras_compembed.litert.flatbuffer import replace_tensor
from keras_compembed.litert.flatbuffer import schema

# Numbers that no model is likely to compare with; floats that float16 has.
_END = -65_344.0
_FIRST_OF_VECTORS = -64_992.0
_STEP = 32.0
_FIRST_OF_IDS = -2_000_000_011
_MOST_MARKS = 900
_CONTROL_FLOW = {"CALL", "CALL_ONCE", "IF", "WHILE"}
_DTYPES = ("int32", "float32", "float16")


@dataclasses.dataclass(eq=False)
class MarkedLookup:
    """A function of a layer, written down between marks."""

    layer: keras.layers.Layer
    method: str
    number: int
    form: object
    texts: "Texts | None" = None
    calls: int = 0
    has_constants: bool = False
    has_other_inputs: bool = False
    outputs: list = dataclasses.field(default_factory=list)

    def marked(self, function):
        """The function with marks before and after it."""

        def call(inputs, *others):
            self.calls += 1
            # Marks on what is known would be computed with the rows, and stay
            # in them. Without marks, a layer is told not to be held to Keras.
            if self.method == "top_ids" or is_known(inputs):
                self.has_constants = True
                return function(inputs, *others)
            if self.number >= _MOST_MARKS:
                outputs = function(inputs)
            else:
                if self.method in ("embed", "texts"):
                    inputs = tf.cast(inputs, tf.int32)
                    start = _FIRST_OF_IDS - self.number
                else:
                    start = _FIRST_OF_VECTORS + _STEP * self.number
                outputs = function(tf.maximum(inputs, start))
                outputs = tf.maximum(outputs, _END)
            self.outputs.append(outputs)
            return outputs

        return call


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts by which a function of ids is held to Keras."""

    reference: Callable
    window: int | None = None
    step: int = 1


def is_known(tensor):
    """Whether a tensor depends on no input, so that the converter has it."""
    seen, ahead = set(), [tensor]
    while ahead:
        tensor = ahead.pop()
        if not tf.is_symbolic_tensor(tensor):
            continue
        graph, key = tensor.graph, (id(tensor.graph), tensor.name)
        if key in seen:
            continue
        seen.add(key)
        outside = {inside.name: outer for outer, inside in graph.captures}
        if tensor.name in outside:
            ahead.append(outside[tensor.name])
        elif tensor.op.type == "Placeholder":
            return False
        else:
            ahead.extend(tensor.op.inputs)
    return True


def take_out_marks(model):
    """Removes all marks from a model, in place."""
    # Numbers of marks, graphs, and two tensors: one is made of the other alone.
    passages, lost = [], set()
    for place, graph in enumerate(model.subgraphs):
        starts, ends = _find_marks(model, graph)
        numbers = {mark.outputs[0]: number for mark, number in starts}
        found = {}
        for mark in ends:
            tensor = _marked_tensor(model, graph, mark)
            _, sources = _walk_back(model, graph, tensor, numbers)
            if len(sources) == 1 and sources <= numbers.keys():
                (found[mark.outputs[0]],) = sources
        lost |= {numbers[x] for x in numbers.keys() - found.values()}
        entries, taken_out = {}, set()
        for mark, _ in starts:
            tensor = _marked_tensor(model, graph, mark)
            graph.operators.remove(mark)
            replace_tensor(model, graph, mark.outputs[0], tensor)
            entries[mark.outputs[0]] = tensor
        for mark in ends:
            end = _take_out_end(model, graph, mark, taken_out)
            taken_out.add(end)
            if mark.outputs[0] in found:
                start = found[mark.outputs[0]]
                passages.append((numbers[start], place, entries[start], end))
        _drop_scalars(model, graph)
    places = drop_unused(model)
    passages = [
        (number, place, places[place][start], places[place][end])
        for number, place, start, end in passages
    ]
    return list(dict.fromkeys(passages)), lost


def _find_marks(model, graph):
    """Marks at starts with their numbers, and marks at ends."""
    starts, ends = [], []
    for operator in graph.operators or ():
        if name_op(model, operator) != "MAXIMUM":
            continue
        for index in operator.inputs:
            value = number = _scalar(model, graph, index)
            if isinstance(value, int):
                number = _FIRST_OF_IDS - value
            elif value is not None:
                number = (value - _FIRST_OF_VECTORS) / _STEP
            if value == _END:
                ends.append(operator)
            elif number in range(_MOST_MARKS):
                starts.append((operator, int(number)))
    return starts, ends


def _scalar(model, graph, index):
    """A constant number, int or float by its type, or None."""
    for producer in _producers(graph, index):
        # In float16 files.
        if name_op(model, producer) != "DEQUANTIZE":
            return None
        index = producer.inputs[0]
    tensor = graph.tensors[index]
    data = model.buffers[tensor.buffer].data
    dtype = name_type(tensor.type)
    if data is None or dtype not in _DTYPES:
        return None
    numbers = np.asarray(data, "uint8")
    if len(numbers) != np.dtype(dtype).itemsize:
        return None
    return numbers.view(dtype).item()


def _producers(graph, index):
    return [op for op in graph.operators if index in op.outputs]


def _marked_tensor(model, graph, mark):
    first, second = mark.inputs
    return second if _scalar(model, graph, first) is not None else first


def _take_out_end(model, graph, mark, taken_out):
    """Removes a mark, but not the tensor it gave, as outputs have names."""
    before, after = _marked_tensor(model, graph, mark), mark.outputs[0]
    graph.operators.remove(mark)
    producers = _producers(graph, before)
    if before in taken_out or not producers:
        replace_tensor(model, graph, after, before)
        return before
    for producer in producers:
        producer.outputs = np.where(
            np.equal(producer.outputs, before), after, producer.outputs
        ).astype("int32")
    replace_tensor(model, graph, before, after)
    return after


def _drop_scalars(model, graph):
    """Removes the float32 forms of the float16 numbers of marks."""
    for operator in list(graph.operators or ()):
        if name_op(model, operator) == "DEQUANTIZE":
            (output,) = operator.outputs
            if output not in graph.outputs and not list_readers(graph, output):
                graph.operators.remove(operator)


def _walk_back(model, graph, end, starts):
    """What a tensor is computed by."""
    producers = {
        output: operator
        for operator in graph.operators
        for output in operator.outputs
    }
    needed, sources, seen, ahead = set(), set(), set(), [end]
    while ahead:
        index = int(ahead.pop())
        if index < 0 or index in seen:
            continue
        seen.add(index)
        if index in starts:
            sources.add(index)
        elif index in producers:
            needed.add(id(producers[index]))
            ahead.extend(producers[index].inputs)
        elif model.buffers[graph.tensors[index].buffer].data is None:
            sources.add(index)
    return [op for op in graph.operators if id(op) in needed], sources


def cut_out(model, place, start, end):
    """A model that computes one tensor of a graph from another."""
    graph = model.subgraphs[place]
    operators, sources = _walk_back(model, graph, end, {start})
    kinds = {name_op(model, operator) for operator in operators}
    if sources != {start} or kinds & _CONTROL_FLOW:
        return None
    part = schema.ModelT()
    part.version = model.version
    part.operatorCodes = model.operatorCodes
    cut = schema.SubGraphT()
    cut.tensors, cut.operators = [], []
    # The first buffer is that of all that the runtime computes.
    tensors, buffers = {-1: -1}, {None: 0}

    def add(index):
        if index in tensors:
            return tensors[index]
        tensors[index] = len(cut.tensors)
        tensor = copy.copy(graph.tensors[index])
        is_constant = model.buffers[tensor.buffer].data is not None
        old = tensor.buffer if is_constant else None
        tensor.buffer = buffers.setdefault(old, len(buffers))
        tensor.name = f"tensor_{tensors[index]}".encode()
        cut.tensors.append(tensor)
        return tensors[index]

    def add_all(indices):
        return np.array([add(int(index)) for index in indices], "int32")

    cut.inputs = add_all([start])
    for operator in operators:
        operator = copy.copy(operator)
        operator.inputs = add_all(operator.inputs)
        operator.outputs = add_all(operator.outputs)
        cut.operators.append(operator)
    cut.outputs = add_all([end])
    part.buffers = [
        schema.BufferT() if old is None else model.buffers[old]
        for old in buffers
    ]
    part.subgraphs = [cut]
    signature = schema.SignatureDefT()
    signature.signatureKey = b"serving_default"
    signature.inputs = [_named(b"inputs", cut.inputs[0])]
    signature.outputs = [_named(b"outputs", cut.outputs[0])]
    part.signatureDefs = [signature]
    return part


def _named(name, index):
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry
