"""Which inputs of a LiteRT file are ids."""

import dataclasses

from keras_compembed.export import flatbuffer
from keras_compembed.export.flatbuffer import schema

# Up to where floats hold every whole number.
_EXACT = {
    schema.TensorType.FLOAT64: 2**53,
    schema.TensorType.FLOAT32: 2**24,
    schema.TensorType.FLOAT16: 2**11,
    # TensorFlow before 2.20 has no name for BFLOAT16.
    18: 2**8,
}
# What hands numbers on as they are.
_MOVES = {
    "CAST",
    "CONCATENATION",
    "EXPAND_DIMS",
    "GATHER",
    "PACK",
    "RESHAPE",
    "SELECT",
    "SELECT_V2",
    "SLICE",
    "SPLIT",
    "SPLIT_V",
    "SQUEEZE",
    "STRIDED_SLICE",
    "TRANSPOSE",
    "UNPACK",
}
# Places of ids, and of the table, among an op's inputs.
_LOOKUPS = {
    "EMBEDDING_LOOKUP": (0, 1),
    "GATHER": (1, 0),
    "GATHER_ND": (1, 0),
    "ONE_HOT": (0, None),
}
# What gives no numbers of its input, but places and sizes.
_ASK_FOR_PLACES = {"ARG_MAX", "ARG_MIN", "RANK", "SHAPE", "TOPK_V2"}


@dataclasses.dataclass
class IdUse:
    """How an input is used as ids."""

    is_number: bool = False
    blurred: tuple | None = None


def find_ids(model, graph):
    """Inputs whose numbers choose rows of tables."""
    readers = {}
    for operator in graph.operators or ():
        for place, index in enumerate(_places(operator.inputs)):
            readers.setdefault(index, []).append((operator, place))
    found = {}
    for index in _places(graph.inputs):
        use = _follow(model, graph, readers, index)
        if use is not None:
            found[index] = use
    return found


def _follow(model, graph, readers, start):
    """The use of one input, or None if it chooses no rows."""
    use, is_ids = IdUse(), False
    # Tensors, each with the narrowest float that its numbers have been, and
    # whether they are what the input holds still, not computed from ids.
    todo, seen = [(start, None, True)], set()
    while todo:
        index, narrowest, is_same = todo.pop()
        kind = graph.tensors[index].type
        is_float = kind in _EXACT
        is_same = is_same and is_float
        narrowest = min(
            (each for each in (kind, narrowest) if each in _EXACT),
            key=_EXACT.get,
            default=None,
        )
        if (index, narrowest, is_same) in seen:
            continue
        seen.add((index, narrowest, is_same))
        if is_same and index in graph.outputs:
            use.is_number = True
        for operator, place in readers.get(index, ()):
            name = flatbuffer.name_op(model, operator)
            outputs = [
                each
                for each in _places(operator.outputs)
                if graph.tensors[each].type != schema.TensorType.BOOL
            ]
            if place == _LOOKUPS.get(name, (None,))[0]:
                is_ids = True
                rows = _count_rows(graph, operator, _LOOKUPS[name][1])
                if narrowest is not None and rows > _EXACT[narrowest]:
                    use.blurred = flatbuffer.name_type(narrowest), rows
            elif is_float and name not in _MOVES:
                # Masks and sizes are no numbers.
                use.is_number |= is_same and name != "SHAPE" and bool(outputs)
            elif name not in _ASK_FOR_PLACES:
                todo += [(each, narrowest, is_same) for each in outputs]
    return use if is_ids else None


def _places(indices):
    return [] if indices is None else [int(index) for index in indices]


def _count_rows(graph, operator, place):
    if place is None:
        return 0
    shape = graph.tensors[operator.inputs[place]].shape
    return 0 if shape is None or not len(shape) else int(shape[0])
