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
