"""What files are for: which ops they may have, and what runs them."""

import dataclasses
from collections.abc import Callable

from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.graft import graft
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.interpreter import TensorFlowModel
from keras_compembed.export.mediapipe_model import MediaPipeModel
from keras_compembed.export.text_front import convert_tokenizer
from keras_compembed.utils.extras import require
from keras_compembed.utils.validation import check_choice

TASKS = (None, "classifier", "embedder")
_TOKENIZER = "tensorflow_text"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """What a file is for.

    Attributes:
        name: String, as users name it.
        open: Function from a path to functions that run the file there, on
            inputs as `check.compare` has them.
        takes_texts: Boolean, whether the tokenizer is in the file.
        op_names: Dict from names of tensorflow-text's ops to what the runtime
            calls them.
        task: String, which object of MediaPipe opens the file, or None.
    """

    name: str
    open: Callable
    takes_texts: bool = True
    op_names: dict = dataclasses.field(default_factory=dict)
    task: str | None = None

    def check(self, split, input_signature):
        """Raises before any work if a file cannot be made.

        Args:
            split: `SplitModel`, or None of a model that takes numbers.
            input_signature: Same as in `export_litert`.
        """
        if not self.takes_texts:
            return
        if split is None:
            raise ValueError(
                f"`runtime={self.name!r}` needs a model that takes texts. "
                "Received: a model that takes numbers. Put a tokenizer of "
                "`keras_compembed.text` in front, or pass runtime='litert'."
            )
        if input_signature is not None:
            raise ValueError(
                f"`runtime={self.name!r}` makes files that take one text, "
                "whatever `input_signature` says. Received: "
                f"input_signature={input_signature!r}."
            )
        require("tensorflow_text", "text")
        if self.task is not None:
            require("mediapipe", "mediapipe")
            _check_vectors(split.model)
        split.as_tokenizer()

    def add_tokenizer(self, model, split):
        """Puts a tokenizer in front of a model that takes ids, in place.

        Args:
            model: Object from `read_model`.
            split: `SplitModel`.
        """
        graft(read_model(convert_tokenizer(split.as_tokenizer())), model)
        for code in model.operatorCodes:
            code.customCode = self.op_names.get(
                code.customCode, code.customCode
            )


def _check_vectors(model):
    """Raises unless MediaPipe takes all outputs of a model from ids."""
    for name, tensor in zip(model.output_names, model.outputs, strict=True):
        if "float" not in tensor.dtype or None in tensor.shape[1:]:
            raise ValueError(
                "`runtime='mediapipe'` needs outputs that are floats, as many "
                "for each text. Received: the output "
                f"{name!r} of dtype {tensor.dtype} and shape {tensor.shape}."
            )


def get_runtime(name, task):
    """The `Runtime` of a name.

    Args:
        name: `"litert"`, `"tf-text"` or `"mediapipe"`.
        task: None, `"classifier"` or `"embedder"`, for MediaPipe only.
    """
    check_choice("runtime", name, tuple(_RUNTIMES))
    check_choice("task", task, TASKS)
    if name != "mediapipe" and task is not None:
        raise ValueError(
            "`task` says which object of MediaPipe opens the file, and must "
            f"be None for other runtimes. Received: task={task!r} and "
            f"runtime={name!r}."
        )
    return _RUNTIMES[name](task)


def _open_in_both(path):
    return [LiteRTModel(path), TensorFlowModel(path)]


def _open_in_mediapipe(task, path):
    model = MediaPipeModel(path, task)

    def run(inputs):
        (texts,) = inputs.values()
        return model.predict(texts)

    return [run]


def _litert(task):
    return Runtime(
        "litert", lambda path: [LiteRTModel(path)], takes_texts=False
    )


def _tf_text(task):
    return Runtime("tf-text", _open_in_both)


def _mediapipe(task):
    task = task or "classifier"
    return Runtime(
        "mediapipe",
        lambda path: _open_in_mediapipe(task, path),
        op_names={
            b"TFText>FastSentencepieceTokenize": b"TFSentencepieceTokenizeOp"
        },
        task=task,
    )


_RUNTIMES = {"litert": _litert, "tf-text": _tf_text, "mediapipe": _mediapipe}
