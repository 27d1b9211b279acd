"""Runs files in MediaPipe Tasks, the same C++ code as on phones."""

import ctypes
import os
import weakref
from collections.abc import Iterable

import numpy as np

from keras_compembed.export.inspect_litert import has_tf_text
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.validation import check_text
from keras_compembed.utils.validation import require


class MediaPipeModel:
    """Runs a LiteRT file in MediaPipe Tasks, as an app does.

    MediaPipe's own `TextClassifier` or `TextEmbedder` runs the file. Results
    are arrays, in the order of the classes.

    Example:

    >>> tokenizer = kc.text.WordTokenizer(["good", "bad"])
    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((), dtype="string"),
    ...         tokenizer,
    ...         keras.layers.Embedding(tokenizer.vocabulary_size, 4),
    ...         keras.layers.GlobalAveragePooling1D(),
    ...         keras.layers.Dense(2, "softmax"),
    ...     ]
    ... )
    >>> export = kc.export_litert(
    ...     model,
    ...     "moods.tflite",
    ...     labels=["sad", "glad"],
    ...     target=kc.export.Target("mediapipe"),
    ...     verbose=0,
    ... )
    >>> moods = MediaPipeModel("moods.tflite")
    >>> moods.predict(["so good", "too bad"]).shape
    (2, 2)
    >>> list(moods.labels.values())
    [('sad', 'glad')]

    Args:
        path: String or path-like, the `.tflite` file.
        task: `"classifier"` for `TextClassifier`, `"embedder"` for
            `TextEmbedder`, or `None`. Defaults to `None`: a classifier if the
            file has labels, otherwise an embedder.

    Attributes:
        output_names: List of strings.
        labels: Dict from output names to tuples of strings.

    Raises:
        ValueError: If the file was not exported for MediaPipe.
    """

    def __init__(self, path: str | os.PathLike, task: str | None = None):
        file = inspect_litert(path)
        require(
            not has_tf_text(file.ops),
            "MediaPipe has no ops of tensorflow-text. Run the file with "
            "`keras_compembed.export.LiteRTModel`, or export with "
            "Target(runtime='mediapipe').",
            path=file.path,
        )
        self.labels = file.labels
        self.output_names = [tensor.name for tensor in file.outputs]
        if task is None:
            task = "classifier" if self.labels else "embedder"
        name, method, self._read = _OBJECTS[task]
        tasks = import_extra("mediapipe.tasks.python", "mediapipe")
        texts = import_extra("mediapipe.tasks.python.text", "mediapipe")
        options = getattr(texts, f"{name}Options")(
            base_options=tasks.BaseOptions(model_asset_path=os.fspath(path))
        )
        try:
            self._object = getattr(texts, name).create_from_options(options)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"`path` must be a file for MediaPipe's {name}: export it "
                "with Target(runtime='mediapipe'). Received: "
                f"{os.fspath(path)!r}. MediaPipe says: {error}"
            ) from error
        # MediaPipe's own clean-up fails at exit.
        self._close = weakref.finalize(self, _close, self._object)
        self._answer = getattr(self._object, method)

    def __call__(self, text: str) -> np.ndarray | dict:
        """Returns MediaPipe's result for one text."""
        return self._named(self._run(text))

    def predict(self, texts: Iterable) -> np.ndarray | dict:
        """Returns MediaPipe's results for many texts.

        Args:
            texts: Iterable of strings, or an array or tensor of them.

        Returns:
            float32 array `(texts, size)` if the model has one output, else a
            dict of arrays.
        """
        require(
            not isinstance(texts, (str, bytes)),
            "`texts` must be an iterable of strings.",
            texts=texts,
        )
        texts = list(np.asarray(texts, object).reshape(-1))
        require(texts, "`texts` must hold a string.", texts=texts)
        answers = zip(*map(self._run, texts), strict=True)
        return self._named(list(map(np.stack, answers)))

    def _run(self, text):
        require(self._close.alive, "The model must be open.", is_closed=True)
        return self._read(self._answer(read_text(text)))

    def _named(self, arrays):
        outputs = dict(zip(self.output_names, arrays, strict=True))
        return outputs if len(outputs) != 1 else arrays[0]

    def close(self) -> None:
        """Frees MediaPipe's memory."""
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.close()


def read_text(text):
    """Checks a text and returns it as a string."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                "`text` must be valid UTF-8, which MediaPipe needs. "
                f"Received: {text!r}."
            ) from error
    require(isinstance(text, str), "`text` must be a string.", text=text)
    check_text("text", text)
    require(
        "\0" not in text,
        "`text` must hold no NUL: MediaPipe would stop there.",
        text=text,
    )
    return text


def _close(task):
    try:
        task.close()
    except (RuntimeError, ValueError):
        # At exit, MediaPipe's thread is gone. Deleting the object would try
        # again and complain, so keep it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


def _scores(answer):
    """Scores of the classes of each output, in the order of classes."""
    scores = []
    for head in answer.classifications:
        ordered = sorted(head.categories, key=lambda each: each.index)
        scores.append(np.array([each.score for each in ordered], "float32"))
    return scores


def _vectors(answer):
    return [
        np.asarray(each.embedding, "float32").reshape(-1)
        for each in answer.embeddings
    ]


# Classes of MediaPipe Tasks, their methods, and readers of results.
_OBJECTS = {
    "classifier": ("TextClassifier", "classify", _scores),
    "embedder": ("TextEmbedder", "embed", _vectors),
}
