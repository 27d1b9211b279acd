"""What a LiteRT file is for, and what it says of itself."""

import dataclasses

from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_text
from keras_compembed.utils.validation import check_version
from keras_compembed.utils.validation import require


@dataclasses.dataclass(frozen=True)
class FileMetadata:
    """Who made a LiteRT file, and what for, as the file itself says it.

    Apps and tools read it as TFLite model metadata; `inspect_litert` shows it.

    Example:

    >>> FileMetadata(name="Moods of reviews", license="Apache-2.0").license
    'Apache-2.0'

    Args:
        name: Optional string, what the model is called.
        description: Optional string, what it is for.
        version: Optional string, e.g. `"1.0"`.
        author: Optional string.
        license: Optional string, e.g. `"Apache-2.0"`.

    Raises:
        ValueError: if one is given that is no string, or an empty one.
    """

    name: str | None = None
    description: str | None = None
    version: str | None = None
    author: str | None = None
    license: str | None = None

    def __post_init__(self):
        for name, value in vars(self).items():
            if value is not None:
                require(
                    isinstance(value, str) and value.strip(),
                    f"`{name}` of `FileMetadata` must be a string that is not "
                    "empty, or None.",
                    **{name: value},
                )
                check_text(name, value)


@dataclasses.dataclass(frozen=True)
class Target:
    """What a LiteRT file is for: what runs it, and what it must hold to.

    Example:

    >>> target = Target(min_runtime="2.16", max_bytes=200_000)
    >>> model = keras.Sequential(
    ...     [keras.Input((None,), dtype="int32"), kc.CodeEmbedding(1000, 64)]
    ... )
    >>> export = kc.export.export_litert(
    ...     model, "codes.tflite", target=target, verbose=0
    ... )
    >>> export.file_bytes < 200_000
    True

    Args:
        runtime: `"litert"`, `"tf-text"` or `"mediapipe"`. `"litert"`: built-in
            ops that every runtime has; of a model that takes texts, the file
            takes ids, and holds the vocabulary for the app. `"tf-text"`: texts
            in, one at a time, for an interpreter with the ops of
            tensorflow-text. `"mediapipe"`: texts in, one at a time, for
            MediaPipe Tasks as they are, on phones and in browsers. Defaults to
            `"litert"`.
        min_runtime: Optional string, e.g. `"2.17"`. The oldest TFLite runtime
            that must run the file: a file that needs a newer one is an error.
            Defaults to `None`.
        task: With `runtime="mediapipe"`, `"classifier"` for MediaPipe's
            `TextClassifier` or `"embedder"` for its `TextEmbedder`. Defaults
            to `None`, a classifier.
        optimize_for: `None`, `"latency"`, `"size"` or `"memory"`. What matters
            most in the choice of the ops that compose rows from codes: their
            estimated time, the bytes of the file, or those bytes and what the
            runtime holds. Where the number of ids is open, the choice is made
            for 64. Defaults to `None`: the fastest ops with which the file is
            at most 2 % larger than need be.
        metadata: Optional `FileMetadata`: name, author, license and the like,
            for the file to hold. Defaults to `None`.
        tolerance: Optional float, the largest difference from Keras allowed,
            over the largest output, and of rows over the largest number of
            their table. Defaults to `1e-4`, with `quantize="float16"` to
            `0.01`, with `"int8"` and `"int8_codebooks"` to `0.1`; of sums of
            codewords and of rounded rows, to what rounding each of them makes.
        max_bytes: Optional integer. A file of more bytes is an error, and is
            not written. Defaults to `None`.

    Raises:
        ValueError: if a field is out of range.
    """

    runtime: str = "litert"
    min_runtime: str | None = None
    task: str | None = None
    optimize_for: str | None = None
    metadata: FileMetadata | None = None
    tolerance: float | None = None
    max_bytes: int | None = None

    def __post_init__(self):
        runtimes = ("litert", "tf-text", "mediapipe")
        check_choice("runtime", self.runtime, runtimes)
        check_choice("task", self.task, (None, "classifier", "embedder"))
        require(
            self.runtime == "mediapipe" or self.task is None,
            "`task` says which object of MediaPipe opens the file, and must be "
            "None for other runtimes.",
            task=self.task,
            runtime=self.runtime,
        )
        goals = (None, "latency", "size", "memory")
        check_choice("optimize_for", self.optimize_for, goals)
        if self.min_runtime is not None:
            check_version("min_runtime", self.min_runtime)
        if self.tolerance is not None:
            check_positive_number("tolerance", self.tolerance)
        check_positive_int("max_bytes", self.max_bytes, optional=True)
        require(
            isinstance(self.metadata, FileMetadata | None),
            "`metadata` must be a `keras_compembed.export.FileMetadata`.",
            metadata=self.metadata,
        )


def check_target(target):
    """Returns a `Target`; the usual one for None."""
    target = Target() if target is None else target
    require(
        isinstance(target, Target),
        "`target` must be a `keras_compembed.export.Target`.",
        target=target,
    )
    return target
