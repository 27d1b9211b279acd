"""What is in a LiteRT file, in numbers and as text."""

import dataclasses
import textwrap

from keras_compembed.export.file_metadata import FileMetadata

_WIDTH = 80
# Constants that have a line of their own, and their least share of the file.
_MAX_PARTS = 12
_MIN_SHARE = 0.001
_MAX_NAME = 44

MEDIAPIPE_TOKENIZER = "CUSTOM TFSentencepieceTokenizeOp"
_MEDIAPIPE_OPS = {MEDIAPIPE_TOKENIZER, "CUSTOM RaggedTensorToTensor"}
# How names of tensorflow-text's ops begin.
_TF_TEXT_OPS = ("CUSTOM TFText>", "CUSTOM FastBert", "CUSTOM FastWordpiece")


@dataclasses.dataclass(frozen=True)
class LiteRTTensor:
    """An input or output of a LiteRT file."""

    name: str
    dtype: str
    shape: tuple
    scale: float | None = None
    zero_point: int | None = None


@dataclasses.dataclass(frozen=True)
class LiteRTSignature:
    """A function in a LiteRT file."""

    name: str | None
    inputs: tuple
    outputs: tuple


@dataclasses.dataclass(frozen=True)
class LiteRTConstant:
    """Numbers in a LiteRT file: a table, a matrix."""

    name: str
    dtype: str
    shape: tuple
    bytes: int


@dataclasses.dataclass(frozen=True)
class LiteRTFile:
    """What is in a LiteRT file, in numbers and as text."""

    path: str
    file_bytes: int
    min_runtime: str | None
    signatures: tuple
    ops: dict
    constants: tuple
    metadata: dict
    file_metadata: FileMetadata = FileMetadata()
    labels: dict = dataclasses.field(default_factory=dict)

    @property
    def inputs(self):
        """Inputs of the first signature."""
        return self.signatures[0].inputs

    @property
    def outputs(self):
        """Outputs of the first signature."""
        return self.signatures[0].outputs

    @property
    def constant_bytes(self):
        """All constants."""
        return sum(constant.bytes for constant in self.constants)

    @property
    def graph_bytes(self):
        """The graph itself: all that is neither constants nor metadata."""
        rest = self.constant_bytes + sum(self.metadata.values())
        return self.file_bytes - rest

    def to_dict(self):
        """All figures as a dict that `json` can write."""
        return {
            **dataclasses.asdict(self),
            "constant_bytes": self.constant_bytes,
            "graph_bytes": self.graph_bytes,
        }

    def __str__(self):
        runtime = "runtime unknown"
        if self.min_runtime is not None:
            runtime = f"runtime {self.min_runtime} or newer"
        heading = f"{self.path}: {self.file_bytes:,} bytes, {runtime}"
        return f"{heading}\n{self.describe()}"

    def describe(self, max_parts=_MAX_PARTS):
        """Inputs, outputs, ops and the largest parts as text."""
        return "\n".join([*self._ends(), *self._parts(max_parts)])

    def _ends(self):
        about = [
            (name, " ".join(text.split()))
            for name, text in vars(self.file_metadata).items()
            if text is not None
        ]
        yield from ["About:", *_aligned(about)] if about else []
        for signature in self.signatures:
            several = len(self.signatures) > 1
            ending = f" of {signature.name}" if several else ""
            for title in ("Inputs", "Outputs"):
                tensors = getattr(signature, title.lower())
                yield f"{title}{ending}:" + ("" if tensors else " none")
                yield from _aligned(
                    [
                        (each.name, each.dtype, _describe(each))
                        for each in tensors
                    ]
                )
        for name, labels in self.labels.items():
            yield f"Labels of {name} ({len(labels)}):"
            yield textwrap.shorten(
                ", ".join(labels),
                _WIDTH,
                initial_indent="  ",
                placeholder=" ...",
            )

    def _parts(self, max_parts):
        yield f"Ops ({sum(self.ops.values())}):"
        kinds = sorted(self.ops.items(), key=lambda item: (-item[1], item[0]))
        # Spaces at which no line is broken.
        words = [
            (name if number == 1 else f"{number} {name}").replace(" ", "\xa0")
            for name, number in kinds
        ]
        yield textwrap.fill(
            ", ".join(words) or "none",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        ).replace("\xa0", " ")
        custom = {name for name in self.ops if name.startswith("CUSTOM ")}
        if custom:
            yield f"  {_explain(custom)}"
        if any(name.startswith("CUSTOM Flex") for name in custom):
            yield '  Flex ops are in the library of "Select TF ops".'
        yield "Bytes:"
        least = _MIN_SHARE * self.file_bytes
        shown = [x for x in self.constants if x.bytes >= least][:max_parts]
        smaller = self.constants[len(shown) :]
        rows = [
            (part.bytes, _short(part.name), part.dtype, str(part.shape))
            for part in shown
        ]
        size = sum(part.bytes for part in smaller)
        rows += [
            (size, f"{len(smaller)} smaller constants", "", ""),
            (self.graph_bytes, "the graph", "", ""),
            (sum(self.metadata.values()), "metadata", "", ""),
        ]
        rows = [
            (f"{size:,}", f"{size / self.file_bytes:.1%}", *words)
            for size, *words in sorted(rows, key=lambda row: -row[0])
            if size
        ]
        yield from _aligned(rows, right=2)


def has_tf_text(ops):
    """Whether names of ops hold one of tensorflow-text."""
    return any(name.startswith(_TF_TEXT_OPS) for name in ops)


def _explain(names):
    if names <= _MEDIAPIPE_OPS and MEDIAPIPE_TOKENIZER in names:
        return "MediaPipe Tasks has these CUSTOM ops, and no other runtime."
    others = names - _MEDIAPIPE_OPS
    if has_tf_text(names) and all(x.startswith(_TF_TEXT_OPS) for x in others):
        return "CUSTOM ops are those of tensorflow-text: an app must add them."
    return "No runtime has CUSTOM ops: an app must add them."


def _describe(tensor):
    text = str(tensor.shape)
    if tensor.scale is not None:
        value = "value"
        if tensor.zero_point:
            sign = "+" if tensor.zero_point < 0 else "-"
            value = f"(value {sign} {abs(tensor.zero_point)})"
        text += f", {tensor.scale:.6g} * {value}"
    return text


def _short(name):
    return name if len(name) <= _MAX_NAME else f"...{name[3 - _MAX_NAME :]}"


def _aligned(rows, right=0):
    """Lines of columns, the first `right` of which are aligned there."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if place < right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
