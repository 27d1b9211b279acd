"""Converts a Keras model to a TensorFlow function and a LiteRT file."""

import collections
import contextlib
import os
import re
import tempfile

import keras
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.classes.class_head import find_output
from keras_compembed.export.equal_ops import rewrite_ops
from keras_compembed.layers import top_classes
from keras_compembed.litert.flatbuffer import count_ops
from keras_compembed.litert.flatbuffer import get_min_runtime
from keras_compembed.litert.flatbuffer import ops_of_runtime
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.utils.files import FULL
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import layer_of
from keras_compembed.utils.model_parts import output_names
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# By default, outputs have all probabilities up to this number of classes, else
# the best few.
_MOST, _BEST = 2000, 10


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
# Ops that pass values on, or only cast them.
_PASSES = ("Cast", "Const", "Identity", "Placeholder", "ReadVariableOp")
_KERAS_QUANTIZES = (
    "Export the model as it was before `quantize`, and let "
    "`export_litert(model, path, quantize='int8')` store its weights in 8 bits."
)
_AFTER = "export a model that begins after the layer."
# Ops that multiply by weights.
_PRODUCTS = {"CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}
_ADVICE = {
    "a lookup table": f"Look values up before the model: {_AFTER}",
    "strings": f"Turn text and hashes into ids before the model: {_AFTER}",
    "8-bit products": _KERAS_QUANTIZES,
    "8-bit floats": _KERAS_QUANTIZES,
    "float64": "Make the layer with dtype='float32', and set its weights.",
    "random numbers": (
        "Draw them in training only, or export a model without the layer."
    ),
}
GraphOp = collections.namedtuple("GraphOp", ("kind", "path", "dtypes"))


@contextlib.contextmanager
def kept_state(model):
    """Restores the states of stateful layers at the end."""
    states = [
        (variable, variable.numpy())
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.RNN) and layer.stateful
        for variable in keras.tree.flatten(layer.states)
    ]
    try:
        yield
    finally:
        for variable, value in states:
            variable.assign(value)


def get_signature(model, input_signature=None):
    """Specs of the model's inputs, in the structure of a call."""
    if input_signature is None:
        # A Sequential model has inputs once it is built.
        input_signature = getattr(model, "inputs", None)
        if input_signature and not isinstance(model, keras.Sequential):
            input_signature = model.input
        require(
            input_signature is not None,
            "`input_signature` must be given for a model without "
            "`keras.Input`s: a tf.TensorSpec for each input, e.g. "
            "input_signature=tf.TensorSpec((None, None), 'int32').",
            input_signature=None,
            model=model.name,
        )
    if isinstance(input_signature, (list, tuple)) and len(input_signature) == 1:
        (input_signature,) = input_signature
    names, specs = set(), []
    for path, spec in keras.tree.flatten_with_path(input_signature):
        shape = getattr(spec, "shape", None)
        dtype = getattr(spec, "dtype", None)
        require(
            shape is not None and dtype is not None,
            "`input_signature` must hold a spec with a shape and a dtype for "
            "each input, e.g. tf.TensorSpec((None, None), 'int32').",
            input_signature=input_signature,
        )
        dtype = tf.as_dtype(dtype)
        if dtype == tf.bfloat16:
            # NumPy and the languages of apps lack this dtype.
            dtype = tf.float32
        require(
            dtype.is_floating or dtype.is_integer or dtype.is_bool,
            "The inputs of an exported model must be real numbers: export a "
            "model that begins after the layer that turns text into ids.",
            dtype=dtype.name,
        )
        keys = [key for key in path if isinstance(key, str)]
        name = keys[-1] if keys else getattr(spec, "name", None)
        if name is None or name.startswith("keras_tensor"):
            name = "inputs"
        specs.append(tf.TensorSpec(shape, dtype, _new_name(name, names)))
    return keras.tree.pack_sequence_as(input_signature, specs)


def _new_name(name, names):
    """A valid name that is not in `names`; adds it there."""
    name = base = re.sub(r"\W", "_", name)
    number = 1
    while name in names:
        name = f"{base}_{number}"
        number += 1
    names.add(name)
    return name


def trace(model, signature):
    """A concrete function of the model, from named inputs to named outputs."""

    def serve(*tensors):
        inputs = keras.tree.pack_sequence_as(signature, list(tensors))
        # Such names cannot be outermost: put another around them.
        is_odd = model.name[:1] in "_-/"
        with tf.name_scope("model") if is_odd else contextlib.nullcontext():
            return name_outputs(model, model(inputs, training=False))

    return tf.function(
        serve,
        input_signature=keras.tree.flatten(signature),
        autograph=False,
    ).get_concrete_function()


def name_outputs(model, outputs):
    """A dict of the outputs of a model, in order."""
    flat = keras.tree.flatten_with_path(outputs)
    layer_names = getattr(model, "output_names", None) or []
    if len(layer_names) != len(flat):
        layer_names = [f"output_{place}" for place in range(len(flat))]
    names, named = set(), {}
    for (path, tensor), name in zip(flat, layer_names, strict=True):
        keys = [key for key in path if isinstance(key, str)]
        named[_new_name(keys[-1] if keys else name, names)] = tensor
    return named


class ClassAnswers:
    """Replaces outputs of layers of classes by the best classes (`top_k`)."""

    def __init__(self, top_k=None, task=None):
        check_positive_int("top_k", top_k, minimum=0, optional=True)
        # Vectors of texts are features.
        self._top_k = 0 if top_k is None and task == "embedder" else top_k
        self.sizes, self.texts = {}, {}

    def of_graph(self, model):
        """The model with outputs replaced, if its last layers are known."""
        if _is_closed(model):
            return model
        find = top_classes.find_heads if self._top_k else top_classes.list_heads
        heads = find(model)
        top_classes.check_number("top_k", self._top_k or None, heads)
        if any(heads):
            heads = self._note(output_names(model), heads)
        if not any(heads):
            return model
        numbers = [head and self._number(head) for head in heads]
        return top_classes.answering_model(model, heads, numbers, model.name)

    def of_calls(self, model):
        """Same, if its last layers are known only after a call."""
        if not _is_closed(model):
            return model
        largest = max(_heads(model), key=top_classes.num_ids)
        top_classes.check_number("top_k", self._top_k or None, [largest])
        return _Answering(model, self)

    def of_outputs(self, outputs):
        """Outputs by name, with classes in place of features."""
        marks = map(find_output, outputs.values())
        heads = self._note(outputs, [mark and mark.head for mark in marks])
        require(
            not self._top_k or any(heads),
            "`top_k` needs a model with a layer of classes as its output.",
            top_k=self._top_k,
            outputs=list(outputs),
        )
        answers = [
            head and top_classes.answer_of(head, tensor, self._number(head))
            for head, tensor in zip(heads, outputs.values(), strict=True)
        ]
        return top_classes.name_answers(
            list(outputs), outputs.values(), answers
        )

    def _number(self, head):
        if self._top_k is None and head.num_classes > _MOST:
            return _BEST
        return self._top_k

    def _note(self, names, heads):
        """Heads, or None for outputs that stay as they are."""
        answered = []
        for name, head in zip(names, heads, strict=True):
            is_head = isinstance(head, ClassHead)
            if is_head and self._top_k == 0:
                self.texts[name] = "features, not classes"
            if not (head and self._top_k or is_head and self._top_k is None):
                answered.append(None)
                continue
            number, size = self._number(head), top_classes.num_ids(head)
            part = "probabilities"
            text = f"{part} of all {size:,} classes"
            if number is not None:
                what = "classes" if is_head else "ids"
                part, text = "ids", f"the best {number} of {size:,} {what}"
            prefix = "" if len(heads) == 1 else f"{name}_"
            self.texts[name], self.sizes[prefix + part] = text, size
            answered.append(head)
        return answered


def _heads(model):
    return [each for each in all_layers(model) if isinstance(each, ClassHead)]


def _is_closed(model):
    """Whether the last layer may be one of classes, but unknown."""
    ends = [layer_of(each) for each in getattr(model, "outputs", None) or ()]
    # A later layer may pass on the tensor that such a layer marked.
    known = ClassHead, top_classes.TopClasses
    is_open = any(isinstance(end, known) for end in ends) and not any(
        isinstance(end, keras.Model) for end in ends
    )
    return not is_open and bool(_heads(model))


class _Answering(keras.Model):
    """A model that returns classes in place of features."""

    def __init__(self, model, answers):
        super().__init__(name=model.name)
        self.model, self.answers = model, answers

    def call(self, inputs, training=False):
        outputs = self.model(inputs, training=training)
        return self.answers.of_outputs(name_outputs(self.model, outputs))


def check_finite(model, quantize):
    """Raises for NaN and infinity, which would crash the converter."""
    for weight in model.weights:
        require(
            not keras.backend.is_float_dtype(weight.dtype)
            or tf.reduce_all(tf.math.is_finite(weight.value)),
            f"`quantize={quantize!r}` needs weights that are finite, not NaN.",
            weight=weight.path,
        )


def convert(functions, model, quantize):
    """Converts functions of a traced model, with built-in ops only."""
    module = tf.Module()
    module.functions = functions
    # Save the captured variables; codes of CodeEmbedding are constants.
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
            # TensorFlow reports a full disk only in the text of its errors.
            full = [x for x in FULL if os.strerror(x) in str(error)]
            if full:
                raise OSError(
                    full[0],
                    f"Cannot write to the temporary folder {folder!r}: "
                    f"{os.strerror(full[0])}. Set the environment variable "
                    "TMPDIR to another folder.",
                ) from error
            function = next(iter(functions.values()))
            raise ValueError(_explain(str(error), function, model)) from error
    foreign = [op for op in count_ops(file) if op.startswith("CUSTOM ")]
    require(not foreign, _BUILT_IN, ops=foreign)
    return file


def _explain(message, function, model):
    """A message with the ops that the converter refused, and their layers."""
    kinds = set(re.findall(r"\btf\.([A-Z]\w+)", message))
    # Places of ops, e.g. fused["MatMul:", "model/dense/MatMul@f"].
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
            " Loops over axes of unknown size make tensor lists: give "
            "the sizes in `input_signature`, e.g. "
            "tf.TensorSpec((1, 100), 'int32')."
        )
    return text


def check_min_runtime(model, options):
    """Raises if a file needs a newer runtime than `min_runtime`."""
    runtime = get_min_runtime(model)
    if options.serves(runtime):
        return
    ops = ops_of_runtime(model, runtime)
    advice = ""
    if _PRODUCTS.intersection(ops) and options.quantize == "int8":
        advice = " Products of int8 weights need it: pass quantize='float16'."
    raise ValueError(
        "The file must run on `min_runtime`. Received: "
        f"min_runtime={options.min_runtime!r}, but "
        f"{', '.join(ops) or 'ops'} need {'.'.join(map(str, runtime))}. Pass "
        f"that version to `Target`, and ship it with the app.{advice}"
    )


def graph_ops(function):
    """All ops of a concrete function, a list of `GraphOp`."""
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
    """A phrase with the names of the layers of ops; `""` if unknown."""
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
    """Names of layers that an op may belong to, the innermost first."""
    for part in reversed(path.split("/")):
        yield part
        # TensorFlow adds numbers to equal names.
        yield re.sub(r"_\d+$", "", part)


def check_ops(function, model):
    """Raises if LiteRT has no op for a part of a model."""
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
        "`model` must have ops that LiteRT supports. Received: "
        f"{reason} in {where}. {_ADVICE[reason]}"
    )


def _reason(op, double):
    """Why LiteRT lacks an op, or None; `double`: names of float64 layers."""
    if re.search("LookupTable|HashTable", op.kind):
        return "a lookup table"
    # Constant texts of assertions are fine.
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
        # Other layers may have constants, which are folded.
        and not double.isdisjoint(_names_in(op.path))
    ):
        return "float64"
    return None
