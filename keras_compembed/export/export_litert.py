"""Exports Keras models as LiteRT files."""

import dataclasses
import os
import warnings

import keras

from keras_compembed.exchange.model_copy import copy_model
from keras_compembed.export.check import check_copy
from keras_compembed.export.check import check_inputs
from keras_compembed.export.check import check_rows
from keras_compembed.export.check import compare
from keras_compembed.export.check import run_on_inputs
from keras_compembed.export.conversion import ClassAnswers
from keras_compembed.export.conversion import check_finite
from keras_compembed.export.conversion import check_min_runtime
from keras_compembed.export.conversion import check_ops
from keras_compembed.export.conversion import convert
from keras_compembed.export.conversion import get_signature
from keras_compembed.export.conversion import kept_state
from keras_compembed.export.conversion import trace
from keras_compembed.export.file_contents import FileContents
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.litert_layers import exchange_forms
from keras_compembed.export.target import Runtime
from keras_compembed.export.target import Target
from keras_compembed.export.target import check_target
from keras_compembed.export.text_front import TEXT
from keras_compembed.export.text_front import as_texts
from keras_compembed.export.text_front import run_on_texts
from keras_compembed.export.text_front import split_model
from keras_compembed.litert.flatbuffer import count_ops
from keras_compembed.litert.flatbuffer import get_min_runtime_text
from keras_compembed.litert.flatbuffer import order_ends
from keras_compembed.litert.flatbuffer import pack
from keras_compembed.litert.flatbuffer import write_model
from keras_compembed.litert.litert_form import TOLERANCES
from keras_compembed.litert.litert_form import ExportOptions
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_version
from keras_compembed.utils.validation import require

# The newest runtime of the pod TensorFlowLiteSwift.
_POD = (2, 17, 0)
# Packages with these runtimes, oldest first.
_RUNTIMES = {
    "litert": {
        _POD: "pod TensorFlowLiteSwift 2.17",
        (2, 18, 0): "LiteRT 1.0.1",
        (2, 21, 0): "ai-edge-litert 2.1.6",
    },
    "tf-text": {},
    "mediapipe": {
        _POD: "MediaPipe Tasks 0.10",
        (2, 21, 0): "MediaPipe Tasks 1.0.1",
    },
}
# Names of the ops of each runtime.
_KINDS = {
    "litert": "built-in ops",
    "tf-text": "ops of LiteRT and tensorflow-text",
    "mediapipe": "ops of MediaPipe Tasks",
}


@dataclasses.dataclass(frozen=True)
class LiteRTExport:
    """Describes a file that `export_litert` wrote; `print` it.

    Attributes:
        path: String, the file.
        file_bytes: Integer, its size.
        ops: Tuple of the names of its ops.
        max_error: Float, the largest difference from Keras, relative to the
            largest output. `max_row_error` is the same for table rows.
        min_runtime: String, the oldest TFLite runtime; `None` if unknown.
        held_layers, not_held_layers: Tuples of strings, layers with rows that
            were compared with Keras, and layers with rows that were not.
        pooled_layers, folded_layers: Tuples of strings, layers that are pooled
            before they are decoded, and layers folded into tables.
        labels: Dict from output names to tuples of strings.
        text_bytes: Integer, bytes of the tokenizer or vocabulary.
        answers: Dict from output names to descriptions, such as
            `"the best 10 of 5,000 classes"`.
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
    runtime: str = "litert"
    labels: dict = dataclasses.field(default_factory=dict)
    text_bytes: int = 0
    answers: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        within = f"within {self.max_error:.1e} of Keras"
        if self.held_layers:
            within += f", table rows within {self.max_row_error:.1e}"
        parts = [
            f"{self.path}: {self.file_bytes:,} bytes",
            f"for {_name_runtime(self.runtime, self.min_runtime)}",
            f"{len(self.ops)} kinds of {_KINDS[self.runtime]}",
            within,
            *(f"{name!r} as {text}" for name, text in self.answers.items()),
        ]
        if self.text_bytes:
            part = "vocabulary" if self.runtime == "litert" else "tokenizer"
            parts.append(f"{self.text_bytes:,} bytes of {part}")
        if self.labels:
            parts.append(f"{sum(map(len, self.labels.values()))} labels")
        for layers, said in (
            (self.not_held_layers, "rows of {} were not compared"),
            (self.pooled_layers, "{} pooled before decoding"),
            (self.folded_layers, "{} folded into tables"),
        ):
            if layers:
                parts.append(said.format(", ".join(map(repr, layers))))
        return "; ".join(parts)


def _name_runtime(runtime, version):
    """A TFLite version, and the oldest known package that has it."""
    if version is None:
        return "an unknown TFLite version"
    oldest, packages = check_version("min_runtime", version), _RUNTIMES[runtime]
    found = [name for known, name in packages.items() if oldest <= known]
    return f"TFLite {version}{f' ({found[0]})' if found else ''} or newer"


def export_litert(
    model: keras.Model,
    path: str | os.PathLike,
    input_signature: object = None,
    sample_inputs: object = None,
    quantize: str | None = "int8",
    labels: list | dict | None = None,
    top_k: int | None = None,
    target: Target | None = None,
    overwrite: bool = False,
    verbose: int = 1,
) -> LiteRTExport:
    """Writes a Keras model as a LiteRT (TFLite) file.

    By default the file has built-in ops only. If the model begins with a
    tokenizer (of `keras_compembed.text`, or a `keras.layers.TextVectorization`)
    the file takes ids, or texts: see the `runtime` of `Target`.

    Tables stay compressed in the file: codes and quantized rows are packed, and
    transforms of `ANTEmbedding` are sparse. If it is faster, codes are pooled
    before they are decoded, and `Dense` and `Conv1D` layers after a lookup are
    folded into its table. Every exported file is run and compared with Keras
    before it is written, including every table row. (With composition `"lstm"`,
    enough rows to cover each codeword.)

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
        model: A `keras.Model`: Sequential, functional or subclassed. Input
            axes that are `None` stay open in the file. A model of mixed or
            half precision is exported as float32, and compared with the same
            weights in float32.
        path: String or path-like ending in `.tflite`, the file to write.
        input_signature: Optional structure of `tf.TensorSpec`, in which the
            model is called. Needed for subclassed models. Defaults to `None`:
            the model's own inputs.
        sample_inputs: Optional inputs to compare the file and the model on, in
            the structure that the model takes (texts if it takes texts).
            Defaults to `None`: random ids below the `input_dim` of the layer
            that reads them, in several sizes. For a file that takes texts:
            empty, long and foreign texts, and some made of the vocabulary.
        quantize: `None`, `"float16"`, `"int8"` or `"int8_codebooks"`. How
            codebooks, anchors and other weights are stored. Codes and quantized
            rows stay as they are. Sparse transforms get a step size for each
            anchor, and 16 or 8 bits. With `"int8_codebooks"`, codebooks,
            anchors and projections alone are int8. With `None`, weights are
            float32. Defaults to `"int8"`.
        labels: Optional list of strings, the names of all classes in the order
            of their ids. If the file has several outputs: a dict from output
            names to such lists. Required for MediaPipe's `TextClassifier`.
            Labels are stored in the zip archive at the end of the file, where
            apps find them. Defaults to `None`.
        top_k: Optional integer, how many of the best classes to output. A layer
            of classes such as `CANESoftmax` gives `"ids"` and
            `"probabilities"`, by its own search. A tied embedding, such as
            `CodeEmbedding` called with `reverse=True`, gives `"ids"` and
            `"scores"`, exactly. See `keras_compembed.top_k_model`. `0` leaves
            features and logits as they are. Defaults to `None`: layers of up to
            2,000 classes give the `"probabilities"` of all, larger ones the
            best 10. Logits, and features for an embedder, stay as they are.
        target: Optional `Target`: the runtime, and limits of the file.
            Defaults to `None`, the same as `Target()`: the built-in ops of
            LiteRT 1.0.1.
        overwrite: Boolean. Whether `path` may exist. Defaults to `False`.
        verbose: `0` or `1`. Whether to print a summary with inputs, outputs,
            ops and bytes, as `inspect_litert` does. Defaults to `1`.

    Returns:
        A `LiteRTExport` with `file_bytes`, `ops`, `max_error`, `min_runtime`,
        `max_row_error`, `labels` and more.

    Raises:
        ValueError: If an argument is out of range, or if the runtime has no op
            for a layer of the model (the message names the layer).
        ImportError: If a package for the runtime is not installed.
        FileExistsError: If `path` exists and `overwrite` is `False`.
        RuntimeError: If the outputs of the file, or rows of its tables, differ
            from Keras (the message names the layer).

    References:
        - [LiteRT](https://ai.google.dev/edge/litert)
    """
    path = os.fspath(path)
    require(
        path.endswith(".tflite"), "`path` must end in '.tflite'.", path=path
    )
    check_output(path, overwrite)
    wanted = input_signature, sample_inputs, quantize, labels, top_k, target
    export = make_file(model, *wanted, path=path, overwrite=overwrite)
    if verbose:
        print(export)
        print(inspect_litert(path).describe(max_parts=5))
        _say_what_older_runtimes_need(model, wanted, export)
    return export


def _say_what_older_runtimes_need(model, wanted, export):
    known, oldest = _RUNTIMES[export.runtime], export.min_runtime
    if not known or oldest is None:
        return
    if check_version("min_runtime", oldest) <= _POD:
        return
    *others, target = wanted
    target = dataclasses.replace(
        check_target(target), min_runtime="2.17", max_bytes=None
    )
    try:
        with warnings.catch_warnings():
            # They were said of the file.
            warnings.simplefilter("ignore")
            made = make_file(model, *others, target)
    except ValueError:
        # An op has no older form.
        print(f"{known[_POD]} cannot run this file.")
        return
    more = made.file_bytes - export.file_bytes
    print(
        f"For {known[_POD]}, pass Target(min_runtime='2.17'): {more:+,} bytes."
    )


def _fill_biases(model):
    """Fills zero vectors, which the converter would drop from the file."""
    for place, weight in enumerate(model.weights):
        if len(weight.shape) == 1 and "float" in weight.dtype:
            if not keras.ops.any(weight):
                weight.assign(keras.ops.full(weight.shape, 1e-6 * (1 + place)))


def make_file(
    model,
    input_signature=None,
    sample_inputs=None,
    quantize="int8",
    labels=None,
    top_k=None,
    target=None,
    path=None,
    overwrite=False,
    is_trained_later=False,
):
    """Same as `export_litert`; without a path, only counts its bytes."""
    check_temporary_folder()
    require(
        isinstance(model, keras.Model),
        "`model` must be a `keras.Model`.",
        model=type(model),
    )
    check_choice("quantize", quantize, tuple(TOLERANCES))
    target = check_target(target)
    runtime = Runtime(target)
    names = "min_runtime", "optimize_for", "unroll"
    options = ExportOptions(quantize, *(getattr(target, x) for x in names))
    contents = FileContents(labels, target.metadata, runtime.task)
    answers = ClassAnswers(top_k, runtime.task)
    # Layers of the copy are replaced by those of the file.
    original, copy = model, copy_model(model, float32=True)
    whole = model = answers.of_graph(copy)
    split = split_model(model)
    runtime.check(split, input_signature)
    is_given = input_signature is not None
    if split is not None:
        model = split.model
        input_signature = input_signature or split.signature(runtime.batch)
        if sample_inputs is not None:
            sample_inputs = as_texts(sample_inputs, runtime.read_text)
            if not runtime.takes_texts:
                sample_inputs = split.layer(sample_inputs)
    signature = get_signature(model, input_signature)
    require(
        model.built,
        "`model` must be built: call it on inputs.",
        model=model.name,
    )
    called = model
    whole, model = answers.of_calls(whole), answers.of_calls(model)
    if quantize in ("int8", "int8_codebooks"):
        check_finite(model, quantize)
    with kept_state(model), kept_state(original):
        if runtime.takes_texts:
            samples, outputs = run_on_texts(whole, split, sample_inputs)
        else:
            samples, outputs = run_on_inputs(model, signature, sample_inputs)
        texts = split and not runtime.takes_texts and [split.some_text()]
        check_copy(original, copy, texts or samples)
    if is_trained_later:
        _fill_biases(model)
    contents.check(outputs[0], answers.sizes)
    check_inputs(called, signature, is_given=is_given)
    runtime.check_outputs(samples, outputs)
    forms, folded = exchange_forms(model, options)
    names = [spec.name for spec in keras.tree.flatten(signature)]
    function = trace(model, signature)
    check_ops(function, model)
    file = convert({"serving_default": function}, model, quantize)
    runtime.check_file(file)
    order_ends(file, names, list(outputs[0]))
    pack(file, options)
    check_min_runtime(file, options)
    max_row_error, held, not_held = check_rows(
        file, forms if path else {}, model, options, target.tolerance
    )
    content, text_bytes, vocabulary = write_model(file), 0, []
    if runtime.takes_texts:
        graph_bytes = len(content)
        runtime.add_tokenizer(file, split)
        check_min_runtime(file, options)
        content = write_model(file)
        text_bytes = len(content) - graph_bytes
    elif split is not None:
        vocabulary = split.vocabulary_files()
        text_bytes = sum(len(each.content) for each in vocabulary)
    content = contents.add_to(content, file, vocabulary)
    runtime.check_size(len(content), original)
    max_error = 0.0
    if path is not None:
        names = [TEXT] if runtime.takes_texts else names
        with replacing(path, overwrite) as temporary:
            with open(temporary, "wb") as opened:
                opened.write(content)
            max_error = max(
                compare(run, names, samples, outputs)
                for run in runtime.open(temporary)
            )
            allowed = target.tolerance or TOLERANCES[quantize]
            if not max_error <= allowed:
                raise RuntimeError(
                    "Outputs of the LiteRT file must equal those of Keras, "
                    f"within {allowed:g} of the largest output. To allow more, "
                    "pass Target(tolerance=...). Received: a difference of "
                    f"{max_error:.2g} (inf: NaN or infinity on one side only). "
                    f"Nothing was written to {path!r}."
                )
    return LiteRTExport(
        path=path,
        file_bytes=len(content),
        ops=tuple(count_ops(file)),
        max_error=max_error,
        min_runtime=get_min_runtime_text(file),
        max_row_error=max_row_error,
        held_layers=held,
        not_held_layers=not_held,
        pooled_layers=tuple(x.name for x in forms if forms[x].is_pooled),
        folded_layers=folded,
        runtime=target.runtime,
        labels=contents.labels,
        text_bytes=text_bytes,
        answers=answers.texts,
    )
