"""Traced models as LiteRT files: converted, packed and read."""

import errno
import os
import re
import tempfile

import keras
import tensorflow as tf

from keras_compembed.export.equal_ops import rewrite_ops
from keras_compembed.export.int8_matrices import quantize_matrices
from keras_compembed.export.refused_ops import explain_ops
from keras_compembed.litert.flatbuffer import count_ops
from keras_compembed.litert.flatbuffer import drop_unused
from keras_compembed.litert.flatbuffer import get_min_runtime
from keras_compembed.litert.flatbuffer import merge_buffers
from keras_compembed.litert.flatbuffer import pack_tables
from keras_compembed.litert.one_hot_rows import unpack_once
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.validation import require

_BUILT_IN = "LiteRT must have a built-in op for everything in the model."
# What TensorFlow tells of a full disk is in the text of its errors alone.
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


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
    """Bytes of functions of a traced model, with built-in ops only."""
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
            return converter.convert()
        except (MemoryError, OSError):
            raise
        except Exception as error:
            full = [x for x in _FULL if os.strerror(x) in str(error)]
            if full:
                raise OSError(
                    full[0],
                    f"Cannot write the model to the folder {folder!r} for "
                    "temporary files; the environment variable TMPDIR names "
                    f"another: {os.strerror(full[0])}.",
                ) from error
            function = next(iter(functions.values()))
            raise ValueError(_explain(str(error), function, model)) from error


def _explain(message, function, model):
    ops = set(re.findall(r"\btf\.([A-Z]\w+)", message))
    # Where the converter was, e.g. fused["MatMul:", "model/dense/MatMul@f"].
    places = re.findall(r'fused\["(\w+):", "([^"@]+)@', message)
    ops = ops or {kind for kind, _ in places if "Call" not in kind}
    paths = [path for kind, path in places if kind in ops]
    named = explain_ops(function, model, sorted(ops), paths)
    text = f"{_BUILT_IN} Received a model with: {named if ops else message}"
    if any("TensorList" in op for op in ops):
        text += (
            " Tensor lists come from loops over axes of unknown size: give "
            "the sizes in `input_signature`, e.g. "
            "tf.TensorSpec((1, 100), 'int32')."
        )
    return text


def finish(model, options, is_whole=True):
    """Packs the codes in a converted file, in place."""
    pack_tables(model, options.tables, is_whole)
    quantize_matrices(model, options.matrices)
    unpack_once(model, options.unpacked)
    merge_buffers(model)
    drop_unused(model)
    foreign = [op for op in count_ops(model) if op.startswith("CUSTOM ")]
    require(not foreign, _BUILT_IN, ops=foreign)


def check_min_runtime(model, options):
    """Raises if a file needs a newer runtime than the user has."""
    runtime = get_min_runtime(model)
    require(
        options.serves(runtime),
        "The file must run on `min_runtime`, and ops of the model need "
        f"{'.'.join(map(str, runtime))}.",
        min_runtime=options.min_runtime,
    )
