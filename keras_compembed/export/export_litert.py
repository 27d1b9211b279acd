"""Keras models as LiteRT files."""

import dataclasses
import os

import keras

from keras_compembed.exchange.model_copy import copy_model
from keras_compembed.export.check import check_copy
from keras_compembed.export.check import check_inputs
from keras_compembed.export.check import check_rows
from keras_compembed.export.check import compare
from keras_compembed.export.check import run_on_inputs
from keras_compembed.export.conversion import check_finite
from keras_compembed.export.conversion import check_min_runtime
from keras_compembed.export.conversion import check_ops
from keras_compembed.export.conversion import convert
from keras_compembed.export.conversion import pack
from keras_compembed.export.file_contents import FileContents
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.litert_layers import exchange_forms
from keras_compembed.export.target import Runtime
from keras_compembed.export.target import check_target
from keras_compembed.export.text_front import TEXT
from keras_compembed.export.text_front import as_texts
from keras_compembed.export.text_front import run_on_texts
from keras_compembed.export.text_front import split_model
from keras_compembed.export.tracing import ClassAnswers
from keras_compembed.export.tracing import get_signature
from keras_compembed.export.tracing import kept_state
from keras_compembed.export.tracing import trace
from keras_compembed.litert.flatbuffer import count_ops
from keras_compembed.litert.flatbuffer import get_min_runtime_text
from keras_compembed.litert.flatbuffer import order_ends
from keras_compembed.litert.flatbuffer import write_model
from keras_compembed.litert.litert_form import TOLERANCES
from keras_compembed.litert.litert_form import ExportOptions
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import require

# What ops are called that a runtime has.
_KINDS = {
    "litert": "built-in ops",
    "tf-text": "ops of LiteRT and tensorflow-text",
    "mediapipe": "ops of MediaPipe Tasks",
}


@dataclasses.dataclass(frozen=True)
class LiteRTExport:
    """What `export_litert` made."""

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
        text = (
            f"{self.path}: {self.file_bytes:,} bytes, {len(self.ops)} kinds "
            f"of {_KINDS[self.runtime]}, runtime "
            f"{self.min_runtime or 'unknown'} or newer, within "
            f"{self.max_error:.1e} of Keras"
        )
        for name, answer in self.answers.items():
            text += f", {name!r} as {answer}"
        if self.text_bytes:
            whose = "tokenizer" if self.runtime != "litert" else "vocabulary"
            text += f", {self.text_bytes:,} bytes of {whose}"
        if self.labels:
            number = sum(map(len, self.labels.values()))
            text += f", {number} labels"
        if self.held_layers:
            text += f", all rows within {self.max_row_error:.1e}"
        for layers, said in (
            (self.not_held_layers, "; rows of {} were not compared"),
            (self.pooled_layers, "; rows of {} are added up as stored"),
            (self.folded_layers, "; {} folded into tables"),
        ):
            if layers:
                text += said.format(", ".join(map(repr, layers)))
        return text


def export_litert(
    model,
    path,
    input_signature=None,
    sample_inputs=None,
    quantize=None,
    labels=None,
    top_k=None,
    target=None,
    overwrite=False,
    verbose=1,
):
    """Writes a Keras model as a LiteRT (TFLite) file.

    A model that begins with a tokenizer of `keras_compembed.text`, or with a
    `keras.layers.TextVectorization`, becomes a file from ids, or one from texts
    that tokenizes by itself: see `Target`. Else ops are built-in ones only.

    Codes of `CodeEmbedding` and rows of `QuantizedEmbedding` layers stay packed
    in the file, transforms of `ANTEmbedding` layers sparse; only rows of the
    ids looked up are unpacked. Sums and averages of vectors over time are made
    of codes. `Dense` layers behind look-ups, or behind such sums, and `Conv1D`
    layers behind look-ups become part of codebooks, anchors and projections,
    where that makes the file faster and not more than 2 % larger (or as the
    target says). Before it is written, the file is run and compared with the
    model, and each look-up in it with its layer, for all ids (with composition
    `"lstm"`: codes of all ids, and rows that name each codeword).

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
            its inputs that are `None` stay open in the file. Mixed and half
            precision are exported as float32: Keras computes in float32, from
            the same weights, what the file is compared with.
        path: String or path-like ending in `.tflite`, the file to write.
        input_signature: Optional structure of `tf.TensorSpec`, as the model
            is called with. Needed for subclassed models. Defaults to `None`:
            the model's own inputs.
        sample_inputs: Optional inputs on which the file is compared with the
            model, as the model is called with; texts if it takes texts.
            Defaults to `None`: random ids below the `input_dim` of the layers
            that they go to, in several sizes; where the file takes texts,
            empty, long and foreign ones, and some made of the vocabulary.
        quantize: `None`, `"float16"`, `"int8"` or `"int8_codebooks"`. How
            codebooks, anchors and other weights are stored; codes, and
            integers and scales of quantized rows, are never touched. Numbers
            of sparse transforms become multiples of a step for each anchor, in
            16 or 8 bits. With `"int8_codebooks"` only codebooks, anchors and
            projections are int8. Defaults to `None`, float32.
        labels: Optional list of strings, the names of the classes in the order
            of the output's numbers; for several outputs of the file a dict
            from their names to such lists; where it answers the best classes
            or ids, the names of all. Needed for a `TextClassifier`. Apps find
            them as files in the zip archive behind the model. Defaults to
            `None`.
        top_k: Optional integer. The file answers so many best classes or ids
            of each example, as `keras_compembed.top_k_model` names them: of
            an output of a layer such as `CANESoftmax`, `"ids"` and
            `"probabilities"`, by the search of the layer; of logits that a
            look-up layer such as `CodeEmbedding` gives with `reverse=True`,
            `"ids"` and `"scores"`, exactly. `0` leaves features and logits as
            they are. Defaults to `None`: of a layer of up to 2,000 classes
            `"probabilities"` of all in their order, of more classes the best
            10; logits, and features for an embedder, as they are.
        target: Optional `Target`: what runs the file, and what the file must
            hold to. Defaults to `None`, the same as `Target()`: the built-in
            ops of LiteRT.
        overwrite: Boolean. Whether `path` may exist. Defaults to `False`.
        verbose: `0` or `1`. Whether to print what was made: inputs, outputs,
            ops and bytes, as by `inspect_litert`.

    Returns:
        A `LiteRTExport`, with `file_bytes`, `ops`, `max_error`, `min_runtime`,
        `max_row_error`, `labels` and more.

    Raises:
        ValueError: if an argument is out of range, or LiteRT or the runtime
            has no op for something in the model (the message names layers).
        ImportError: if what the runtime needs is not installed.
        FileExistsError: if `path` exists and `overwrite` is `False`.
        RuntimeError: if the file's outputs differ from Keras's, or rows of a
            layer do (the message names it).

    References:
        - [LiteRT](https://ai.google.dev/edge/litert)
    """
    path = os.fspath(path)
    require(
        path.endswith(".tflite"), "`path` must end in '.tflite'.", path=path
    )
    check_output(path, overwrite)
    export = make_file(
        model,
        path,
        input_signature,
        sample_inputs,
        quantize,
        labels,
        top_k,
        target,
        overwrite,
    )
    if verbose:
        print(export)
        print(inspect_litert(path).describe(max_parts=5))
    return export


def make_file(
    model,
    path=None,
    input_signature=None,
    sample_inputs=None,
    quantize=None,
    labels=None,
    top_k=None,
    target=None,
    overwrite=False,
):
    """Same as `export_litert`; without a path, a file is counted only."""
    check_temporary_folder()
    require(
        isinstance(model, keras.Model),
        "`model` must be a `keras.Model`.",
        model=type(model),
    )
    check_choice("quantize", quantize, tuple(TOLERANCES))
    target = check_target(target)
    runtime = Runtime(target)
    options = ExportOptions(quantize, target.min_runtime, target.optimize_for)
    contents = FileContents(labels, target.metadata, runtime.task)
    answers = ClassAnswers(top_k, runtime.task)
    # Layers of the copy are exchanged for those of the file.
    original, copy = model, copy_model(model, float32=True)
    whole = model = answers.of_graph(copy)
    split = split_model(model)
    runtime.check(split, input_signature)
    is_given = input_signature is not None
    if split is not None:
        model = split.model
        input_signature = input_signature or split.signature(runtime.batch)
        sample_inputs = _read_samples(sample_inputs, split, runtime)
    signature = get_signature(model, input_signature)
    require(
        model.built,
        "`model` must be built: call it on inputs.",
        model=model.name,
    )
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
    contents.check(outputs[0], answers.sizes)
    runtime.check_outputs(samples, outputs)
    forms, folded = exchange_forms(model, options)
    names = [spec.name for spec in keras.tree.flatten(signature)]
    file = _convert(model, signature, (names, outputs[0]), options, runtime)
    max_row_error, held, not_held = check_rows(
        file, forms if path else {}, model, options, target.tolerance
    )
    check_inputs(file, model, signature, is_given=is_given)
    content, text_bytes = _attach_tokenizer(file, split, runtime, options)
    vocabulary = []
    if split is not None and not runtime.takes_texts:
        vocabulary = split.vocabulary_files()
        text_bytes = sum(len(each.content) for each in vocabulary)
    content = contents.add_to(content, file, vocabulary)
    require(
        target.max_bytes is None or len(content) <= target.max_bytes,
        f"The file must have at most `max_bytes`, and takes "
        f"{len(content):,} bytes.",
        max_bytes=target.max_bytes,
    )
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
            _check_error(max_error, allowed, path)
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


def _read_samples(samples, split, runtime):
    """The user's texts, or their ids where the file takes these."""
    if samples is None:
        return None
    texts = as_texts(samples, runtime.read_text)
    return texts if runtime.takes_texts else split.layer(texts)


def _convert(model, signature, ends, options, runtime):
    """A model as the graph of a file, packed."""
    function = trace(model, signature)
    check_ops(function, model)
    file = convert({"serving_default": function}, model, options.quantize)
    runtime.check_file(file)
    names, outputs = ends
    order_ends(file, names, list(outputs))
    pack(file, options)
    check_min_runtime(file, options)
    return file


def _attach_tokenizer(file, split, runtime, options):
    """Bytes of a file, and those of its tokenizer, which is put into it."""
    content = write_model(file)
    if not runtime.takes_texts:
        return content, 0
    runtime.add_tokenizer(file, split)
    check_min_runtime(file, options)
    whole = write_model(file)
    return whole, len(whole) - len(content)


def _check_error(error, tolerance, path):
    if not error <= tolerance:
        raise RuntimeError(
            "The LiteRT file must give what Keras gives, within "
            f"{tolerance:g} of the largest output; a larger `tolerance` may be "
            f"passed. Received: a difference of {error:.2g} (inf: one gives "
            "NaN or an infinity where the other does not). Nothing was "
            f"written to {path!r}."
        )
