"""What came of an export."""

import dataclasses

# What ops are called that a runtime has.
_KINDS = {
    "litert": "built-in ops",
    "tf-text": "ops of LiteRT and tensorflow-text",
    "mediapipe": "ops of MediaPipe Tasks",
}


@dataclasses.dataclass(frozen=True)
class LiteRTExport:
    """What `export_litert` made.

    Attributes:
        path: String, the file.
        file_bytes: Integer, its size.
        ops: Tuple of strings, the ops in it. Those that come with
            tensorflow-text or MediaPipe begin with `"CUSTOM "`.
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
        runtime: String, what runs it, see `export_litert`.
        labels: Dict from names of outputs to tuples of strings, the names of
            classes in the file.
        text_bytes: Integer, what the tokenizer takes of the file: its table
            and graph, or the vocabulary of files that take ids.
        answers: Dict from names of the model's outputs that are of layers of
            classes, or that `top_k` is for, to what the file answers there:
            `"probabilities of all 50 classes"`, `"the best 10 of 3,000
            classes"` or `"features, not classes"`.
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
