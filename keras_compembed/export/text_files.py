"""Files that take texts: what is added to those that take ids."""

import numpy as np
import tensorflow as tf

from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.flatbuffer import write_model
from keras_compembed.export.graft import graft
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.mediapipe_runtime import MediaPipeClassifier
from keras_compembed.export.text_front import convert_tokenizer

RUNTIMES = ("tf-text", "mediapipe")
SIGNATURE = tf.TensorSpec((1,), "string", "text")
# What MediaPipe calls ops of tensorflow-text.
_MEDIAPIPE_NAMES = {
    b"TFText>FastSentencepieceTokenize": b"TFSentencepieceTokenizeOp"
}
_HARD_TEXTS = (
    "",
    " ",
    "Hello, world! It's 5 o'clock.",
    "\u00c9t\u00e9 na\u00efve \u201cquotes\u201d",
    "\u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \U0001f600",
    "word " * 500,
)


def check(split, runtime, labels):
    """Raises before any work if a file for a runtime cannot be made."""
    if split is None:
        raise ValueError(
            f"`runtime={runtime!r}` needs a model that takes texts. Received: "
            "a model that takes numbers. Put a tokenizer of "
            "`keras_compembed.text` in front, or pass runtime='litert'."
        )


def add_text(content, split, runtime, labels):
    """Bytes of a file from text, made of those of one from ids."""
    model = read_model(content)
    graft(read_model(convert_tokenizer(split.as_tokenizer())), model)
    if runtime == "mediapipe":
        for code in model.operatorCodes:
            name = code.customCode
            code.customCode = _MEDIAPIPE_NAMES.get(name, name)
    return write_model(model)


def sample_texts(split, given=None):
    """List of arrays `(1,)` of texts to compare a file with Keras on."""
    texts = list(_HARD_TEXTS)
    if given is not None:
        texts = list(np.asarray(given, object).reshape(-1))
    return [np.array([text], object) for text in texts]


def get_runner(runtime, path, outputs):
    """A function from a dict of inputs to what a file gives."""
    if runtime != "mediapipe":
        return LiteRTModel(path)
    classifier = MediaPipeClassifier(path)
    names = list(outputs[0])

    def run(inputs):
        scores = classifier(inputs["text"][0])
        if len(names) == 1:
            return scores[0][None]
        return {
            name: each[None] for name, each in zip(names, scores, strict=True)
        }

    return run
