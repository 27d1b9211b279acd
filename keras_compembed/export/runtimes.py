"""What files are for: which ops they may have, and what runs them."""

import dataclasses
import warnings
from collections.abc import Callable

import keras

from keras_compembed.export.check import check_nan
from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.graft import graft
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.interpreter import TensorFlowModel
from keras_compembed.export.litert_file import MEDIAPIPE_TOKENIZER
from keras_compembed.export.mediapipe_model import MediaPipeModel
from keras_compembed.export.mediapipe_model import read_text
from keras_compembed.export.text_front import convert_tokenizer
from keras_compembed.export.tracing import all_layers
from keras_compembed.text.word_piece_tokenizer import WordPieceTokenizer
from keras_compembed.utils.extras import require
from keras_compembed.utils.extras import require_tensorflow_text
from keras_compembed.utils.model_outputs import output_names
from keras_compembed.utils.validation import check_choice

RUNTIMES = ("litert", "tf-text", "mediapipe")
TASKS = (None, "classifier", "embedder")
_WAYS_OUT = (
    "Give the tokenizer a `sequence_length` and the recurrent layers "
    "unroll=True, which needs no new training; or average or convolve the "
    "vectors, or pass runtime='tf-text'."
)


@dataclasses.dataclass(frozen=True)
class Runtime:
    """What a file is for."""

    name: str
    open: Callable
    takes_texts: bool = True
    op_names: dict = dataclasses.field(default_factory=dict)
    task: str | None = None
    read_text: Callable = lambda text: text

    def check(self, split, input_signature):
        """Raises before any work if a file cannot be made."""
        if not self.takes_texts:
            return
        if split is None:
            raise ValueError(
                f"`runtime={self.name!r}` needs a Sequential or functional "
                "model whose input is a text. Received: one that takes numbers "
                "or does not say what it takes. Put a tokenizer of "
                "`keras_compembed.text` in front, as in `text = "
                "keras.Input((), dtype='string')` and `keras.Model(text, "
                "model(tokenizer(text)))`, or pass runtime='litert'."
            )
        if input_signature is not None:
            raise ValueError(
                f"`runtime={self.name!r}` makes files that take one text, "
                "whatever `input_signature` says. Received: "
                f"input_signature={input_signature!r}."
            )
        require_tensorflow_text()
        if self.task is not None:
            require("mediapipe", "mediapipe")
            _check_vectors(split.model)
            _check_loops(split.model)
            _check_tokenizer(split.layer)
        try:
            split.as_tokenizer()
        except ValueError as error:
            raise ValueError(
                f"{error} Train the model with a tokenizer of "
                "`keras_compembed.text`, or pass runtime='litert', whose file "
                "takes ids."
            ) from error

    def add_tokenizer(self, model, split):
        """Puts a tokenizer in front of a model that takes ids, in place."""
        graft(read_model(convert_tokenizer(split.as_tokenizer())), model)
        for code in model.operatorCodes:
            code.customCode = self.op_names.get(
                code.customCode, code.customCode
            )

    def check_outputs(self, samples, outputs):
        """Warns of answers that are none."""
        check_nan(samples, outputs, self.takes_texts)
        if self.task != "classifier":
            return
        names = sorted(
            {
                name
                for each in outputs
                for name, array in each.items()
                if (array < 0).any()
            }
        )
        if names:
            warnings.warn(
                "MediaPipe before 1.2 leaves scores below 0 out of what its "
                "TextClassifier answers. Received: negative numbers of the "
                f"outputs {names}. End the model with a softmax or a sigmoid.",
                stacklevel=3,
            )

    def check_file(self, model):
        """Raises if the runtime does not open what the converter made."""
        if self.task is not None and len(model.subgraphs) > 1:
            raise ValueError(
                "`runtime='mediapipe'` needs a model without loops and "
                "branches, a file of one graph. Received: a model of "
                f"{len(model.subgraphs)} graphs. {_WAYS_OUT}"
            )


def _check_vectors(model):
    """Raises unless MediaPipe takes all outputs of a model from ids."""
    for name, tensor in zip(output_names(model), model.outputs, strict=True):
        if (
            "float" not in tensor.dtype
            or len(tensor.shape) != 2
            or None in tensor.shape[1:]
        ):
            raise ValueError(
                "`runtime='mediapipe'` needs outputs that are one vector of "
                "floats for each text. Received: the output "
                f"{name!r} of dtype {tensor.dtype} and shape {tensor.shape}. "
                "For answers to each token or the best classes alone, pass "
                "runtime='tf-text'."
            )


def _check_loops(model):
    """Raises if a layer loops over time, which MediaPipe does not."""
    loops = [
        repr(layer.name)
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.RNN) and not layer.unroll
    ]
    if loops:
        raise ValueError(
            "`runtime='mediapipe'` needs a model without loops. Received: "
            f"layers that loop over time, {', '.join(loops)}. {_WAYS_OUT}"
        )


def _check_tokenizer(layer):
    """Raises if MediaPipe has no ops for a tokenizer."""
    if isinstance(layer, WordPieceTokenizer):
        raise ValueError(
            "`runtime='mediapipe'` lacks the ops of `WordPieceTokenizer`, and "
            "what MediaPipe has for BERT gives other ids for accents and "
            "capitals. Received: a model with the tokenizer "
            f"{layer.name!r}. Train it with a `SentencePieceTokenizer` or a "
            "`WordTokenizer`, or pass runtime='tf-text', which has them."
        )


def get_runtime(name, task):
    """The `Runtime` of a name."""
    check_choice("runtime", name, RUNTIMES)
    check_choice("task", task, TASKS)
    if name != "mediapipe" and task is not None:
        raise ValueError(
            "`task` says which object of MediaPipe opens the file, and must "
            f"be None for other runtimes. Received: task={task!r} and "
            f"runtime={name!r}."
        )
    return _MAKERS[name](task)


def _open_in_both(path):
    return [LiteRTModel(path), TensorFlowModel(path)]


def _open_in_mediapipe(task, path):
    with MediaPipeModel(path, task) as model:

        def run(inputs):
            (texts,) = inputs.values()
            return model.predict(texts)

        yield run


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
            b"TFText>FastSentencepieceTokenize": MEDIAPIPE_TOKENIZER.encode()
        },
        task=task,
        read_text=read_text,
    )


_MAKERS = {"litert": _litert, "tf-text": _tf_text, "mediapipe": _mediapipe}
