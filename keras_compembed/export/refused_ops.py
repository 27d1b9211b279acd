"""Finds ops of a traced model that LiteRT lacks, and names their layers."""

import collections
import re

import keras
from tensorflow.core.framework import types_pb2

from keras_compembed.export.tracing import all_layers

_FLOAT8 = {
    number
    for name, number in types_pb2.DataType.items()
    if name.startswith("DT_FLOAT8")
}
_HALF = {
    types_pb2.DT_HALF: "float16",
    types_pb2.DT_BFLOAT16: "bfloat16",
}
# What only passes numbers on, from float64 to float32 too.
_PASSES = ("Cast", "Const", "Identity", "Placeholder", "ReadVariableOp")
_KERAS_QUANTIZES = (
    "Export the model as it was before `quantize`, and let "
    "`export_litert(model, path, quantize='int8')` store its weights in 8 bits."
)
_AFTER = "export a model that begins after the layer."
_ADVICE = {
    "a look-up table": f"Look values up before the model: {_AFTER}",
    "strings": f"Turn text and hashes into ids before the model: {_AFTER}",
    "8-bit products": _KERAS_QUANTIZES,
    "8-bit floats": _KERAS_QUANTIZES,
    "float64": "Make the layer with dtype='float32', and set its weights.",
    "random numbers": (
        "Draw them in training only, or export a model without the layer."
    ),
}


GraphOp = collections.namedtuple("GraphOp", ("kind", "path", "dtypes"))


def graph_ops(function):
    """A list of `GraphOp`, all ops of a concrete function."""
    graph = function.graph.as_graph_def()
    library = {each.signature.name: each for each in graph.library.function}
    ops, seen = [], set()

    def walk(nodes, path):
        for node in nodes:
            here = f"{path}/{node.name}"
            values = node.attr.values()
            types = {v.type for v in values if v.WhichOneof("value") == "type"}
            for value in values:
                types.update(value.list.type)
            ops.append(GraphOp(node.op, here, frozenset(types)))
            for value in values:
                for called in (value.func, *value.list.func):
                    if called.name in library and called.name not in seen:
                        seen.add(called.name)
                        walk(library[called.name].node_def, here)

    walk(graph.node, "")
    return ops


def name_layers(model, paths):
    """A phrase that names the layers of ops, or `""` if none is known."""
    layers = {layer.name: layer for layer in _plain_layers(model)}
    found = []
    for path in paths:
        known = [layers[name] for name in _names_in(path) if name in layers]
        if known and known[0] not in found:
            found.append(known[0])
    if not found:
        return ""
    names = ", ".join(
        f"{layer.name!r} ({type(layer).__name__})" for layer in found
    )
    return f"the layer{'s' if len(found) > 1 else ''} {names}"


def _plain_layers(model):
    return [
        layer
        for layer in all_layers(model)
        if not isinstance(layer, keras.Model)
    ]


def _names_in(path):
    """Names of layers that an op may be in, the innermost first."""
    for part in reversed(path.split("/")):
        yield part
        # TensorFlow numbers what has the same name.
        yield re.sub(r"_\d+$", "", part)


def check_ops(function, model):
    """Raises if LiteRT cannot hold what a model does."""
    double = {
        layer.name
        for layer in _plain_layers(model)
        if "float64" in (layer.compute_dtype, layer.variable_dtype)
    }
    found = {}
    for op in graph_ops(function):
        reason = _reason(op, double)
        if reason is not None:
            found.setdefault(reason, []).append(op)
    if not found:
        return
    reason, ops = next(iter(found.items()))
    where = name_layers(model, [op.path for op in ops])
    where = where or ", ".join(sorted({op.kind for op in ops}))
    raise ValueError(
        "`model` must compute what LiteRT has ops for. Received: "
        f"{reason} in {where}. {_ADVICE[reason]}"
    )


def explain_ops(function, model, kinds, paths=()):
    """Names ops that the converter refused, and the layers they are in."""
    ops = [op for op in graph_ops(function) if op.kind in kinds]
    where = name_layers(model, [*paths, *(op.path for op in ops)])
    text = f"{', '.join(kinds)}{where and f' in {where}'}."
    for number, name in _HALF.items():
        if any(number in op.dtypes for op in ops):
            text += (
                f" LiteRT computes in float32, not in {name}: cast to "
                "`self.compute_dtype` or to the dtype of another tensor."
            )
    if any("Random" in kind for kind in kinds):
        text += f" {_ADVICE['random numbers']}"
    return text


def _reason(op, double):
    """What of an op LiteRT lacks, or None; `double` names float64 layers."""
    if re.search("LookupTable|HashTable", op.kind):
        return "a look-up table"
    # Texts of assertions are constants, and are left out.
    if "String" in op.kind or (
        types_pb2.DT_STRING in op.dtypes and op.kind not in ("Const", "Assert")
    ):
        return "strings"
    if re.match("Random|Multinomial|TruncatedNormal|Rng", op.kind):
        # Stateless ones may be constants.
        return "random numbers"
    if op.dtypes & _FLOAT8:
        return "8-bit floats"
    if "MatMul" in op.kind and types_pb2.DT_INT8 in op.dtypes:
        return "8-bit products"
    if (
        types_pb2.DT_DOUBLE in op.dtypes
        and op.kind not in _PASSES
        # Elsewhere they may be constants, which are folded.
        and not double.isdisjoint(_names_in(op.path))
    ):
        return "float64"
    return None
