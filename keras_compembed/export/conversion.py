"""Traced models as LiteRT files: converted, packed and read."""

import collections
import os
import re
import tempfile

import keras
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_compembed.export.equal_ops import rewrite_ops
from keras_compembed.litert.flatbuffer import count_ops
from keras_compembed.litert.flatbuffer import get_min_runtime
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.utils.files import FULL
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.validation import require

_BUILT_IN = "LiteRT must have a built-in op for everything in the model."
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


def check_finite(model, quantize):
    """Raises if a weight has no scale: the converter would end the process."""
    for weight in model.weights:
        require(
            not keras.backend.is_float_dtype(weight.dtype)
            or tf.reduce_all(tf.math.is_finite(weight.value)),
            f"`quantize={quantize!r}` needs weights that are finite, not NaN.",
            weight=weight.path,
        )


def convert(functions, model, quantize):
    """Functions of a traced model as a file with built-in ops only."""
    module = tf.Module()
    module.functions = functions
    # What the functions captured is saved; codes of CodeEmbedding are not.
    variables = [x for each in functions.values() for x in each.variables]
    module.captured = list({id(x): x for x in variables}.values())
    check_temporary_folder(count_bytes(module.captured))
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.saved_model.save(module, folder, signatures=functions)
            rewrite_ops(folder)
            converter = tf.lite.TFLiteConverter.from_saved_model(
                folder, signature_keys=list(functions)
            )
            converter.target_spec.supported_ops = [
                tf.lite.OpsSet.TFLITE_BUILTINS
            ]
            if quantize in ("float16", "int8"):
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if quantize == "float16":
                converter.target_spec.supported_types = [tf.float16]
            file = read_model(converter.convert())
        except (MemoryError, OSError):
            raise
        except Exception as error:
            # TensorFlow tells of a full disk in the text of its errors alone.
            full = [x for x in FULL if os.strerror(x) in str(error)]
            if full:
                raise OSError(
                    full[0],
                    f"Cannot write the model to the folder {folder!r} for "
                    "temporary files; the environment variable TMPDIR names "
                    f"another: {os.strerror(full[0])}.",
                ) from error
            function = next(iter(functions.values()))
            raise ValueError(_explain(str(error), function, model)) from error
    foreign = [op for op in count_ops(file) if op.startswith("CUSTOM ")]
    require(not foreign, _BUILT_IN, ops=foreign)
    return file


def _explain(message, function, model):
    """Names ops that the converter refused, and the layers they are in."""
    kinds = set(re.findall(r"\btf\.([A-Z]\w+)", message))
    # Where the converter was, e.g. fused["MatMul:", "model/dense/MatMul@f"].
    places = re.findall(r'fused\["(\w+):", "([^"@]+)@', message)
    kinds = kinds or {kind for kind, _ in places if "Call" not in kind}
    if not kinds:
        return f"{_BUILT_IN} Received a model with: {message}"
    paths = [path for kind, path in places if kind in kinds]
    ops = [op for op in graph_ops(function) if op.kind in kinds]
    where = name_layers(model, [*paths, *(op.path for op in ops)])
    named = f"{', '.join(sorted(kinds))}{where and f' in {where}'}."
    text = f"{_BUILT_IN} Received a model with: {named}"
    for number, name in _HALF.items():
        if any(number in op.dtypes for op in ops):
            text += (
                f" LiteRT computes in float32, not in {name}: cast to "
                "`self.compute_dtype` or to the dtype of another tensor."
            )
    if any("Random" in kind for kind in kinds):
        text += f" {_ADVICE['random numbers']}"
    if any("TensorList" in kind for kind in kinds):
        text += (
            " Tensor lists come from loops over axes of unknown size: give "
            "the sizes in `input_signature`, e.g. "
            "tf.TensorSpec((1, 100), 'int32')."
        )
    return text


def check_min_runtime(model, options):
    """Raises if a file needs a newer runtime than the user has."""
    runtime = get_min_runtime(model)
    require(
        options.serves(runtime),
        "The file must run on `min_runtime`, and ops of the model need "
        f"{'.'.join(map(str, runtime))}.",
        min_runtime=options.min_runtime,
    )


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
