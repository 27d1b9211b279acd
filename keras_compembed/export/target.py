"""Targets of an export: the runtime, and limits of the file."""

import dataclasses
import warnings

import keras

from keras_compembed.export.check import check_nan
from keras_compembed.export.file_contents import FileMetadata
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.interpreter import TensorFlowModel
from keras_compembed.export.mediapipe_model import MediaPipeModel
from keras_compembed.export.mediapipe_model import read_text
from keras_compembed.export.text_front import convert_tokenizer
from keras_compembed.litert.flatbuffer import get_min_runtime
from keras_compembed.litert.flatbuffer import move_tensors
from keras_compembed.litert.flatbuffer import raise_min_runtime
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.text.word_piece_tokenizer import WordPieceTokenizer
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.extras import import_tensorflow_text
from keras_compembed.utils.files import number_of_bytes
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import output_names
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_version
from keras_compembed.utils.validation import require

_WAYS_OUT = (
    "Give the tokenizer a `sequence_length` and pass Target('mediapipe', "
    "unroll=True), which needs no new training; or replace the recurrent layer "
    "by pooling or convolution; or export for Target(runtime='tf-text')."
)
_TOKENIZER = b"TFText>FastSentencepieceTokenize"
_MEDIAPIPE_TOKENIZER = b"TFSentencepieceTokenizeOp"


@dataclasses.dataclass(frozen=True)
class Target:
    """Describes the runtime of a LiteRT file, and limits of the file.

    Example:

    >>> target = Target(min_runtime="2.17", max_bytes=200_000)
    >>> model = keras.Sequential(
    ...     [keras.Input((None,), dtype="int32"), kc.CodeEmbedding(1000, 64)]
    ... )
    >>> export = kc.export_litert(
    ...     model, "codes.tflite", target=target, verbose=0
    ... )
    >>> export.file_bytes < 200_000
    True

    Args:
        runtime: `"litert"`, `"tf-text"` or `"mediapipe"`. With `"litert"`, the
            file has built-in ops only and takes ids; if the model begins with
            a tokenizer, the file also stores its vocabulary. With `"tf-text"`,
            the file takes one text at a time and needs an interpreter with the
            ops of tensorflow-text. With `"mediapipe"`, it takes one text at a
            time and runs in unmodified MediaPipe Tasks, on phones and in
            browsers. Defaults to `"litert"`.
        min_runtime: Optional string, the oldest TFLite runtime to support. A
            file that needs a newer one is an error. `"2.18"` is LiteRT 1.0.1
            (`com.google.ai.edge.litert:litert`) and MediaPipe Tasks on Android
            and iOS. `"2.17"` is the pod `TensorFlowLiteSwift`. `None` allows
            any. Defaults to `"2.18"`.
        task: Optional string, for `runtime="mediapipe"` only: `"classifier"`
            for MediaPipe's `TextClassifier` or `"embedder"` for its
            `TextEmbedder`. Defaults to `None`, a classifier.
        optimize_for: `None`, `"latency"`, `"size"` or `"memory"`, the goal when
            choosing the ops of a lookup and the layers to fold into codebooks.
            `"latency"`: fastest, at any size. `"size"`: no bytes are added for
            speed. `"memory"`: the same, and less memory at run time: codewords
            are gathered a few codebooks at a time, and codewords of a text are
            counted one by one. Defaults to `None`: the fastest ops that make
            the file at most 2 % larger.
        metadata: Optional dict of strings to store in the file, with any of
            the keys `"name"`, `"description"`, `"version"`, `"author"` and
            `"license"`. Apps and tools read them as TFLite model metadata.
            Defaults to `None`.
        tolerance: Optional float, the largest difference from Keras allowed,
            relative to the largest output (for table rows, to the largest
            entry of the table). Defaults to `1e-4`, to `0.01` with
            `quantize="float16"` and to `0.1` with `"int8"` and
            `"int8_codebooks"`. For sums of codewords and for quantized rows,
            the default is the error that rounding each of them can cause.
        max_bytes: Optional integer, or a string such as `"2MB"`. A larger file
            is an error and is not written. `None` allows any size. Defaults to
            `"budget"`: the `max_bytes` of the `keras_compembed.Budget` that
            compressed the model, if any.
        unroll: Boolean. Whether to unroll recurrent layers: MediaPipe has no
            loops. Inputs must have a known length. Defaults to `False`.

    Raises:
        ValueError: If an argument is invalid, or needs another `runtime`.
    """

    runtime: str = "litert"
    min_runtime: str | None = "2.18"
    task: str | None = None
    optimize_for: str | None = None
    metadata: dict | None = None
    tolerance: float | None = None
    max_bytes: int | str | None = "budget"
    unroll: bool = False

    def __post_init__(self):
        runtimes = ("litert", "tf-text", "mediapipe")
        check_choice("runtime", self.runtime, runtimes)
        check_choice("task", self.task, (None, "classifier", "embedder"))
        require(
            self.runtime == "mediapipe" or self.task is None,
            "`task` must be None unless `runtime` is 'mediapipe'.",
            task=self.task,
            runtime=self.runtime,
        )
        goals = (None, "latency", "size", "memory")
        check_choice("optimize_for", self.optimize_for, goals)
        if self.min_runtime is not None:
            check_version("min_runtime", self.min_runtime)
        if self.tolerance is not None:
            check_positive_number("tolerance", self.tolerance)
        if self.max_bytes not in (None, "budget"):
            limit = number_of_bytes("max_bytes", self.max_bytes)
            object.__setattr__(self, "max_bytes", limit)
        check_boolean("unroll", self.unroll)
        names = FileMetadata.__match_args__
        require(
            self.metadata is None
            or isinstance(self.metadata, dict)
            and set(self.metadata) <= set(names),
            f"`metadata` must be None or a dict of some of {names}.",
            metadata=self.metadata,
        )
        # Checks the values.
        FileMetadata(**self.metadata or {})


def check_target(target):
    """Returns a `Target`; the default one for None."""
    target = Target() if target is None else target
    require(
        isinstance(target, Target),
        "`target` must be a `keras_compembed.export.Target`.",
        target=target,
    )
    return target


class Runtime:
    """A runtime: the ops that it allows, and how to run a file."""

    def __init__(self, target):
        self.name = target.runtime
        self.takes_texts = self.name != "litert"
        self.batch = 1 if self.takes_texts else None
        self.task = target.task
        self._max_bytes, self._unrolls = target.max_bytes, target.unroll
        if self.name == "mediapipe":
            self.task = target.task or "classifier"

    def read_text(self, text):
        return text if self.task is None else read_text(text)

    def open(self, path):
        """Yields functions from inputs by name to outputs of the file."""
        if self.task is None:
            yield LiteRTModel(path)
            if self.takes_texts:
                yield TensorFlowModel(path)
            return
        with MediaPipeModel(path, self.task) as model:
            yield lambda inputs: model.predict(*inputs.values())

    def check(self, split, input_signature):
        """Raises before any work if a file cannot be made."""
        if not self.takes_texts:
            return
        if split is None:
            raise ValueError(
                f"`runtime={self.name!r}` needs a Sequential or functional "
                "model that takes a text. Received: a model that takes numbers "
                "or has no known inputs. Put a tokenizer of "
                "`keras_compembed.text` in front, as in `text = "
                "keras.Input((), dtype='string')` and `keras.Model(text, "
                "model(tokenizer(text)))`, or export for "
                "Target(runtime='litert')."
            )
        require(
            input_signature is None,
            "`input_signature` must be None with "
            f"`runtime={self.name!r}`, where a file takes one text.",
            input_signature=input_signature,
        )
        import_tensorflow_text()
        if self.task is not None:
            import_extra("mediapipe", "mediapipe")
            _check_for_mediapipe(split, self._unrolls)
        try:
            split.as_tokenizer()
        except ValueError as error:
            raise ValueError(
                f"{error} Train the model with a tokenizer of "
                "`keras_compembed.text`, or export for "
                "Target(runtime='litert'), which takes ids."
            ) from error

    def add_tokenizer(self, model, split):
        """Puts a tokenizer in front of a model that takes ids, in place."""
        _graft(read_model(convert_tokenizer(split.as_tokenizer())), model)
        for code in model.operatorCodes:
            if self.task is not None and code.customCode == _TOKENIZER:
                code.customCode = _MEDIAPIPE_TOKENIZER

    def check_outputs(self, samples, outputs):
        """Warns about outputs that MediaPipe would drop."""
        check_nan(samples, outputs, self.takes_texts)
        names = {
            name
            for each in outputs
            for name, array in each.items()
            if self.task == "classifier" and (array < 0).any()
        }
        if names:
            warnings.warn(
                "MediaPipe before 1.2 drops scores below 0 from the results of "
                "its TextClassifier. Received: negative values of the "
                f"outputs {sorted(names)}. End the model with a softmax or a "
                "sigmoid.",
                stacklevel=4,
            )

    def check_size(self, number, model):
        """Raises if a file exceeds the size limit of the target or model."""
        limit, advice = self._max_bytes, ""
        if limit == "budget":
            limits = [
                layer.max_file_bytes
                for layer in all_layers(model)
                if getattr(layer, "max_file_bytes", None)
            ]
            limit = min(limits, default=None)
            advice = (
                " The model was compressed to this limit with other options. "
                "Give `Budget` the `quantize`, `labels`, `top_k` and `target` "
                "of the export, or lift the limit by Target(max_bytes=None)."
            )
        require(
            limit is None or number <= limit,
            f"The file must have at most `max_bytes`={limit or 0:,} bytes."
            f"{advice}",
            file_bytes=number,
        )

    def check_file(self, model):
        """Raises if the runtime cannot open the converted file."""
        require(
            self.task is None or len(model.subgraphs) == 1,
            "`runtime='mediapipe'` needs a model without loops and branches. "
            f"{_WAYS_OUT}",
            graphs=len(model.subgraphs),
        )


def _check_for_mediapipe(split, unrolls):
    """Raises unless MediaPipe has all ops of a model."""
    model, tokenizer = split.model, split.layer
    for name, tensor in zip(output_names(model), model.outputs, strict=True):
        require(
            "float" in tensor.dtype
            and len(tensor.shape) == 2
            and tensor.shape[1] is not None,
            "`runtime='mediapipe'` needs one vector of floats per text as "
            "output. For outputs per token, or the best classes only, export "
            "for Target(runtime='tf-text').",
            output=name,
            dtype=tensor.dtype,
            shape=tensor.shape,
        )
    loops = [
        layer.name
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.RNN) and not (unrolls or layer.unroll)
    ]
    require(
        not loops,
        f"`runtime='mediapipe'` needs a model without loops. {_WAYS_OUT}",
        layers=loops,
    )
    stateful = [
        layer.name
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.RNN) and layer.stateful
    ]
    require(
        not stateful,
        "`runtime='mediapipe'` needs recurrent layers with stateful=False.",
        layers=stateful,
    )
    require(
        not isinstance(tokenizer, WordPieceTokenizer),
        "`runtime='mediapipe'` lacks the ops of `WordPieceTokenizer`, and "
        "MediaPipe's own BERT tokenizer gives other ids for accents and "
        "capitals. Train the model with a `SentencePieceTokenizer` or a "
        "`WordTokenizer`, or export for Target(runtime='tf-text').",
        tokenizer=tokenizer.name,
    )


def _graft(front, back):
    """Puts the graph of `front` before that of `back`, in place."""
    (graph,) = front.subgraphs
    (output,) = graph.outputs
    target = back.subgraphs[0]
    (target_input,) = target.inputs
    # The first buffer of every file is empty.
    first = len(back.buffers) - 1
    for tensor in graph.tensors:
        if tensor.buffer:
            tensor.buffer += first
    back.buffers += front.buffers[1:]
    codes = len(back.operatorCodes)
    back.operatorCodes += front.operatorCodes
    # The output of `front` takes the place of the ids.
    first = len(target.tensors)
    places = {index: first + index for index in range(len(graph.tensors))}
    places |= {int(output): int(target_input), -1: -1}
    target.tensors += graph.tensors
    for op in graph.operators:
        op.opcodeIndex += codes
    move_tensors([graph, *graph.operators], places)
    target.operators = graph.operators + target.operators
    target.inputs = graph.inputs
    (front_signature,), (signature,) = front.signatureDefs, back.signatureDefs
    signature.inputs = front_signature.inputs
    for entry in signature.inputs:
        entry.tensorIndex = places[entry.tensorIndex]
    raise_min_runtime(back, get_min_runtime(front))
