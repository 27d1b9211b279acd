"""Keras models as LiteRT files."""

import dataclasses
import os
import re
import tempfile
import threading

import keras
import tensorflow as tf

from keras_compembed.export import check
from keras_compembed.export import text_files
from keras_compembed.export.export_options import OPTIMIZE_FOR
from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.flatbuffer import get_min_runtime
from keras_compembed.export.flatbuffer import list_ops
from keras_compembed.export.flatbuffer import merge_buffers
from keras_compembed.export.flatbuffer import order_ends
from keras_compembed.export.flatbuffer import pack_tables
from keras_compembed.export.flatbuffer import raise_min_runtime
from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.flatbuffer import write_model
from keras_compembed.export.input_check import check_inputs
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.int8_matrices import quantize_matrices
from keras_compembed.export.marks import take_out_marks
from keras_compembed.export.one_hot_rows import UNPACK_RUNTIME
from keras_compembed.export.one_hot_rows import unpack_once
from keras_compembed.export.refused_ops import check_ops
from keras_compembed.export.refused_ops import explain_ops
from keras_compembed.export.row_check import check_rows
from keras_compembed.export.text_front import split_model
from keras_compembed.export.tracing import float32_form
from keras_compembed.export.tracing import get_signature
from keras_compembed.export.tracing import kept_state
from keras_compembed.export.tracing import litert_form
from keras_compembed.export.tracing import trace
from keras_compembed.layers.top_classes import top_k_model
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import replacing
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_version

# Layers compute in another way while a model is exported.
_ONE_AT_A_TIME = threading.RLock()


@dataclasses.dataclass(frozen=True)
class LiteRTExport:
    """What `export_litert` made.

    Attributes:
        path: String, the file.
        file_bytes: Integer, its size.
        ops: Tuple of strings, the built-in ops in it.
        max_error: Float, the largest difference from Keras on the inputs
            tried, over the largest output.
        min_runtime: String, the oldest LiteRT runtime that runs it, or None
            if the converter does not say.
        max_row_error: Float, the largest difference from Keras of rows of
            look-up layers of this package, over the largest number of their
            table; None if no rows were compared.
        held_layers: Tuple of strings, names of the layers whose rows were
            compared, those of all ids.
        not_held_layers: Tuple of strings, names of those of which only
            outputs of the model were compared, because the converter looked
            ids up itself or merged the look-up with the rest, or because
            weights or a mask went into sums of rows.
        pooled_layers: Tuple of strings, names of the look-up layers whose
            vectors are added up or averaged without being composed.
        folded_layers: Tuple of strings, names of the `Dense` and `Conv1D`
            layers whose kernels became part of codebooks, anchors or
            projections.
    """

    path: str
    file_bytes: int
    ops: tuple
    max_error: float
    min_runtime: str | None
    max_row_error: float | None = None
    held_layers: tuple = ()
    not_held_layers: tuple = ()
    pooled_layers: tuple = ()
    folded_layers: tuple = ()

    def __str__(self):
        text = (
            f"{self.path}: {self.file_bytes:,} bytes, {len(self.ops)} kinds "
            f"of built-in ops, runtime {self.min_runtime or 'unknown'} or "
            f"newer, within {self.max_error:.1e} of Keras"
        )
        if self.held_layers:
            text += f", all rows within {self.max_row_error:.1e}"
        if self.not_held_layers:
            names = ", ".join(map(repr, self.not_held_layers))
            text += f"; rows of {names} were not compared"
        if self.pooled_layers:
            names = ", ".join(map(repr, self.pooled_layers))
            text += f"; rows of {names} are added up as stored"
        if self.folded_layers:
            names = ", ".join(map(repr, self.folded_layers))
            text += f"; {names} folded into tables"
        return text


def export_litert(
    model,
    path,
    *,
    runtime="litert",
    labels=None,
    input_signature=None,
    top_k=None,
    quantize=None,
    optimize_for=None,
    fold=True,
    min_runtime=None,
    overwrite=False,
    sample_inputs=None,
    tolerance=None,
    verbose=1,
):
    """Writes a Keras model as a LiteRT (TFLite) file of built-in ops.

    Codes of `CodeEmbedding` and rows of `QuantizedEmbedding` layers stay packed
    in the file, in the bits that they take in Keras, and only those of the ids
    looked up are unpacked. Of
    transforms of `ANTEmbedding` layers, trained or sparsified, the file holds
    the non-zeros, and only rows of the ids looked up are read; where shapes
    are known, so are those of the look-up, as the runtime's `CompiledModel`
    wants. Sums and averages of vectors over time are made of codes, and layers
    that are linear become part of codebooks: see `fold`. The file is run and
    compared with the model before it gets its name, and each look-up in it with
    the layer that it comes from, for all ids. With composition `"lstm"`, whose
    rows take long, codes of all ids are compared, and rows that name each
    codeword.

    Example:

    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((None,), dtype="int32"),
    ...         kc.CodeEmbedding(1000, 64),
    ...         keras.layers.GlobalAveragePooling1D(),
    ...     ]
    ... )
    >>> export = export_litert(model, "model.tflite", verbose=0)
    >>> export.file_bytes < 200_000
    True

    Args:
        model: A `keras.Model`: Sequential, functional or subclassed. Axes of
            its inputs that are `None` stay open in the file. Mixed precision
            is exported as float32.
        path: String or path-like ending in `.tflite`, the file to write.
        input_signature: Optional structure of `tf.TensorSpec`, as the model
            is called with. Needed for subclassed models. Defaults to `None`:
            the model's own inputs.
        top_k: Optional integer. The file answers so many best classes or ids
            of each example, as `keras_compembed.top_k_model` names them: of
            an output of a layer such as `CANESoftmax`, `"ids"` and
            `"probabilities"`, by the search of the layer; of logits that a
            look-up layer such as `CodeEmbedding` gives with `reverse=True`,
            `"ids"` and `"scores"`, exactly. Codes are added up for a chunk of
            ids at a time, fastest with inputs whose batch size is 1.
            Defaults to `None`: what the model returns.
        quantize: `None`, `"float16"`, `"int8"` or `"int8_codebooks"`. How
            codebooks, anchors and other weights are stored; codes, and
            integers and scales of rounded rows, are never touched. Numbers of
            sparse transforms become multiples of a step for each anchor, in
            16 or 8 bits. With `"int8_codebooks"` only
            codebooks, anchors and projections are int8, and all else is
            float32. Defaults
            to `None`, float32.
        optimize_for: `None`, `"latency"`, `"size"` or `"memory"`. What matters
            most in the choice of the ops that compose rows from codes: the
            time that they take (on the processor that estimates were made
            on), the bytes of the file, or those bytes and what the runtime
            holds while it runs. Where the number of ids is open, the choice
            is made for 64 at once. Defaults to `None`: the fastest ops with
            which the file is at most 2 % larger than need be.
        fold: Boolean. Whether `keras.layers.Dense` layers behind look-ups, or
            behind sums or averages of their vectors over time, and
            `keras.layers.Conv1D` layers behind look-ups become part of
            codebooks, anchors and projections, where that makes the file
            faster and not more than 2 % larger (or as `optimize_for` says).
            `False` leaves their kernels in the file; sums and averages are
            made of codes either way. Defaults to `True`.
        min_runtime: Optional string, e.g. `"2.17"`. The oldest TFLite runtime
            that must run the file: a file that needs a newer one is an error.
            Defaults to `None`.
        overwrite: Boolean. Whether `path` may exist. Defaults to `False`.
        sample_inputs: Optional inputs on which the file is compared with the
            model, as the model is called with. Defaults to `None`: random ids
            below the `input_dim` of the layers that they go to, in several
            sizes that the model takes.
        tolerance: Optional float, the largest difference from Keras allowed,
            over the largest output, and of rows over the largest number of
            their table. Defaults to `1e-4`, with `quantize="float16"` to
            `0.01`, with `"int8"` and `"int8_codebooks"` to `0.1`, and to
            `0.01` or `0.1` at least where variables are float16 or bfloat16;
            of sums of codewords and of rounded rows, to what rounding each of
            them makes.
        verbose: `0` or `1`. Whether to print what was made: inputs, outputs,
            ops and bytes, as by `inspect_litert`.

    Returns:
        A `LiteRTExport`.

    Raises:
        ValueError: if an argument is out of range, the model does not say
            what its inputs are, or LiteRT has no built-in op for something
            in it, as look-up tables (`IntegerLookup`), strings, random
            numbers, float64 and products of 8-bit numbers (the message names
            ops and layers).
        FileExistsError: if `path` exists and `overwrite` is `False`.
        RuntimeError: if the file's outputs differ from Keras's, or rows of a
            layer do (the message names it).

    References:
        - [LiteRT](https://ai.google.dev/edge/litert)
    """
    path = os.fspath(path)
    if not path.endswith(".tflite"):
        raise ValueError(
            f"`path` must end in '.tflite'. Received: path={path!r}."
        )
    check_output(path, overwrite)
    check_temporary_folder()
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a `keras.Model`. "
            f"Received: an object of type {type(model).__name__}."
        )
    check_choice("runtime", runtime, ("litert", *text_files.RUNTIMES))
    check_choice("quantize", quantize, tuple(check.TOLERANCES))
    check_choice("optimize_for", optimize_for, OPTIMIZE_FOR)
    if top_k is not None:
        model = top_k_model(model, top_k)
    split = split_model(model)
    if runtime != "litert":
        text_files.check(split, runtime, labels)
    whole = model
    if split is not None:
        model, input_signature = split.model, split.signature
    oldest = None
    if min_runtime is not None:
        oldest = check_version("min_runtime", min_runtime)
    if tolerance is not None:
        check_positive_number("tolerance", tolerance)
    options = ExportOptions(
        quantize, oldest, optimize_for, check_boolean("fold", fold)
    )
    signature = get_signature(model, input_signature)
    if quantize in ("int8", "int8_codebooks"):
        _check_finite(model, quantize)

    with _ONE_AT_A_TIME, float32_form(model):
        with kept_state(model):
            if sample_inputs is None:
                samples, outputs = check.run_on_random_inputs(model, signature)
            else:
                samples = [check.fit_inputs(signature, sample_inputs)]
                outputs = check.run_keras(model, samples)
        with litert_form(model, options) as (tables, lookups, linear):
            function = trace(model, signature, linear)
        check_ops(function, model)
        content = _convert(function, model, quantize)
        converted = read_model(content)
        names = [spec.name for spec in keras.tree.flatten(signature)]
        order_ends(converted, names, list(outputs[0]))
        content, ops, oldest, *passages = _finish(converted, tables, options)
        check_inputs(
            converted, model, signature, is_given=input_signature is not None
        )
        rows = check_rows(content, lookups, *passages, quantize, tolerance)
        if tolerance is None:
            tolerance = check.default_tolerance(model, quantize)
        if runtime != "litert":
            content = text_files.add_text(content, split, runtime, labels)
            signature = text_files.SIGNATURE
            samples = text_files.sample_texts(split, sample_inputs)
            outputs = check.run_keras(whole, samples)
        with replacing(path, overwrite) as temporary:
            with open(temporary, "wb") as file:
                file.write(content)
            run = text_files.get_runner(runtime, temporary, outputs)
            error = check.compare(run, signature, samples, outputs)
            if not error <= tolerance:
                raise RuntimeError(
                    "The LiteRT file must give what Keras gives, within "
                    f"{tolerance:g} of the largest output. Received: a "
                    f"difference of {error:.2g}. Nothing was written to "
                    f"{path!r}. If the difference is acceptable, pass a "
                    "larger `tolerance`."
                )
    export = LiteRTExport(
        path,
        len(content),
        tuple(ops),
        error,
        oldest,
        rows.max_error,
        rows.held,
        rows.not_held,
        linear.pooled_layers,
        linear.folded_layers,
    )
    if verbose:
        print(export)
        print(inspect_litert(path).describe(max_parts=5))
    return export


def _check_finite(model, quantize):
    """Raises if a weight has no scale: the converter would end the process."""
    for weight in model.weights:
        if (
            keras.backend.is_float_dtype(weight.dtype)
            and not tf.reduce_all(tf.math.is_finite(weight.value)).numpy()
        ):
            raise ValueError(
                f"`quantize={quantize!r}` needs weights that are finite. "
                f"Received: {weight.path!r}, which holds NaN or infinite "
                "numbers."
            )


def _convert(function, model, quantize):
    module = tf.Module()
    module.function = function
    # What the function captured is saved; codes of CodeEmbedding are not.
    module.captured = list(function.variables)
    check_temporary_folder(count_bytes(function.variables))
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.saved_model.save(module, folder, signatures=function)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder)
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
            message = _explain(str(error), function, model)
            raise ValueError(message) from error


def _explain(message, function, model):
    ops = set(re.findall(r"\btf\.([A-Z]\w+)", message))
    # Where the converter was, e.g. fused["MatMul:", "model/dense/MatMul@f"].
    places = re.findall(r'fused\["(\w+):", "([^"@]+)@', message)
    if not ops:
        ops = {kind for kind, _ in places if "Call" not in kind}
    named = explain_ops(
        function,
        model,
        sorted(ops),
        [path for kind, path in places if kind in ops],
    )
    text = (
        "LiteRT must have a built-in op for everything in the model. "
        f"Received a model with: {named if ops else message}"
    )
    if any("TensorList" in op for op in ops):
        text += (
            " Tensor lists come from loops over axes of unknown size: give "
            "the sizes in `input_signature`, e.g. "
            "tf.TensorSpec((1, 100), 'int32')."
        )
    if "StridedSlice" in ops:
        text += (
            " A new axis, as in `x[:, None]`, can stand beside one axis of "
            "unknown size only: give the other sizes in `input_signature`, "
            "e.g. tf.TensorSpec((None, 100), 'int32'), or write "
            "`keras.ops.expand_dims(x, 1)`."
        )
    return text


def _finish(model, tables, options):
    """Packs the codes in a converted file, and reads what is in it.

    Returns:
        Tuple of the bytes, names of ops, oldest runtime or None, passages
        and numbers of marks, see `take_out_marks`.
    """
    pack_tables(model, tables)
    quantize_matrices(model, options.matrices)
    if unpack_once(model, options.unpacked):
        raise_min_runtime(model, UNPACK_RUNTIME)
    merge_buffers(model)
    passages, lost = take_out_marks(model)
    ops = list_ops(model)
    foreign = [op for op in ops if op.startswith("CUSTOM ")]
    if foreign:
        raise ValueError(
            "LiteRT must have a built-in op for everything in the model. "
            f"Received a file with: {', '.join(foreign)}."
        )
    runtime, oldest = get_min_runtime(model), options.min_runtime
    if oldest is not None and runtime is not None and runtime > oldest:
        raise ValueError(
            "The file must run on `min_runtime`. Received: "
            f"min_runtime={'.'.join(map(str, oldest))!r} and a model whose "
            f"ops need {'.'.join(map(str, runtime))}."
        )
    text = None if runtime is None else ".".join(map(str, runtime))
    return write_model(model), ops, text, passages, lost
