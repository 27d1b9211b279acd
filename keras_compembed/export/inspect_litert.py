"""Lists the contents of a LiteRT file, as an object and as text."""

import dataclasses
import os
import struct
import textwrap
import zipfile

import numpy as np

from keras_compembed.export.file_contents import AXIS_LABELS
from keras_compembed.export.file_contents import ENTRY
from keras_compembed.export.file_contents import VALUE_LABELS
from keras_compembed.export.file_contents import FileMetadata
from keras_compembed.export.file_contents import read_metadata
from keras_compembed.litert import flatbuffer
from keras_compembed.utils.validation import require

_WIDTH = 80
# The most constants to list, and their least share of the file.
_MAX_PARTS = 12
_MIN_SHARE = 0.001
_MAX_NAME = 44

MEDIAPIPE_TOKENIZER = "CUSTOM TFSentencepieceTokenizeOp"
_MEDIAPIPE_OPS = {MEDIAPIPE_TOKENIZER, "CUSTOM RaggedTensorToTensor"}
# How names of tensorflow-text's ops begin.
_TF_TEXT_OPS = ("CUSTOM TFText>", "CUSTOM FastBert", "CUSTOM FastWordpiece")


def inspect_litert(path: str | os.PathLike) -> "LiteRTFile":
    """Lists the contents of a LiteRT (TFLite) file.

    `print` the result, or use its `to_dict()`. It works on any LiteRT file of
    any size, because it does not read the values of tables.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> export = kc.export_litert(model, "dense.tflite", verbose=0)
    >>> file = inspect_litert("dense.tflite")
    >>> file.inputs[0].shape
    (None, 4)
    >>> file.ops
    {'FULLY_CONNECTED': 1}

    Args:
        path: String or path-like, the `.tflite` file.

    Returns:
        An object with `file_bytes`, `min_runtime` (the oldest runtime that runs
        the file; `None` if unknown), `inputs`, `outputs`, `signatures`, `ops`
        (the count of each kind; ops outside LiteRT begin with `"CUSTOM "`),
        `constants` (largest first), `metadata` (bytes of each),
        `file_metadata` and `labels`.

    Raises:
        ValueError: If the file is damaged or not a LiteRT file.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        beginning = file.read(8)
    require(
        beginning[4:] == flatbuffer.IDENTIFIER,
        "`path` must be a LiteRT file, such as `kc.export_litert` writes.",
        path=path,
        beginning=beginning,
    )
    try:
        # Tables are not read, so files may exceed memory.
        return _read(path, np.memmap(path, mode="r"))
    except _SIGNS_OF_DAMAGE as error:
        raise ValueError(
            "`path` must be a complete LiteRT file. Received: a file that is "
            f"cut short or damaged, {path!r}."
        ) from error


# Errors of reading beyond the end, or of bytes that are no object.
_SIGNS_OF_DAMAGE = (
    *(AttributeError, LookupError, OverflowError, TypeError, ValueError),
    struct.error,
)


def _read(path, content):
    model = flatbuffer.read_model(content)
    constants = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors or ():
            place, size = _place(model.buffers[tensor.buffer], content)
            if size and place not in constants:
                constants[place] = LiteRTConstant(
                    _text(tensor.name),
                    flatbuffer.name_type(tensor.type),
                    _shape(tensor),
                    size,
                )
    metadata, file_metadata, files, labels = {}, FileMetadata(), [], {}
    for entry in model.metadata or ():
        buffer = model.buffers[entry.buffer]
        place, size = _place(buffer, content)
        if place not in constants:
            metadata[_text(entry.name)] = size
        if entry.name == ENTRY and buffer.data is not None:
            file_metadata, files = read_metadata(bytes(buffer.data))
    signatures = tuple(_signatures(model))
    if zipfile.is_zipfile(path):
        # Labels are in a zip archive after the graph.
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                metadata[entry.filename] = entry.compress_size
            labels = _read_labels(archive, signatures[0].outputs, files)
    return LiteRTFile(
        path=path,
        file_bytes=len(content),
        min_runtime=flatbuffer.get_min_runtime_text(model),
        signatures=signatures,
        ops=flatbuffer.count_ops(model),
        constants=tuple(sorted(constants.values(), key=lambda c: -c.bytes)),
        metadata=metadata,
        file_metadata=file_metadata,
        labels=labels,
    )


def _read_labels(archive, outputs, files):
    """Dict from output names to labels, for outputs with labels."""
    names, kinds, labels = archive.namelist(), (AXIS_LABELS, VALUE_LABELS), {}
    for tensor, found in zip(outputs, files, strict=False):
        for name, kind in found:
            # The first file has the names, others are translations.
            if kind in kinds and name in names and tensor.name not in labels:
                lines = archive.read(name).decode(errors="replace")
                lines = lines.replace("\r\n", "\n").removesuffix("\n")
                labels[tensor.name] = tuple(lines.split("\n"))
    return labels


def _place(buffer, content):
    """Offset and size of a buffer in the file."""
    # Files beyond 2 GB have tables after the graph.
    if buffer.offset > 1:
        if buffer.offset + buffer.size > len(content):
            raise IndexError
        return buffer.offset, buffer.size
    if buffer.data is None:
        return None, 0
    start = np.asarray(content).ctypes.data
    return buffer.data.ctypes.data - start, len(buffer.data)


def _signatures(model):
    for signature in model.signatureDefs or (None,):
        graph = model.subgraphs[signature.subgraphIndex if signature else 0]
        yield LiteRTSignature(
            signature and _text(signature.signatureKey),
            _ends(graph, signature, "inputs"),
            _ends(graph, signature, "outputs"),
        )


def _ends(graph, signature, side):
    """Tensors in the order of the graph, named as in the signature."""
    ends = [(index, None) for index in getattr(graph, side)]
    if signature is not None:
        places = {index: place for place, (index, _) in enumerate(ends)}
        entries = getattr(signature, side) or ()
        ends = [(entry.tensorIndex, _text(entry.name)) for entry in entries]
        ends.sort(key=lambda end: places.get(end[0], len(places)))
    return tuple(_tensor(graph.tensors[index], name) for index, name in ends)


def _tensor(tensor, name):
    found, scale, zero_point = tensor.quantization, None, None
    if found is not None and found.scale is not None:
        zero_points = [0] if found.zeroPoint is None else found.zeroPoint
        scale, zero_point = float(found.scale[0]), int(zero_points[0])
    return LiteRTTensor(
        _text(tensor.name) if name is None else name,
        flatbuffer.name_type(tensor.type),
        _shape(tensor),
        scale,
        zero_point,
    )


def _shape(tensor):
    shape = tensor.shapeSignature
    shape = tensor.shape if shape is None else shape
    sizes = () if shape is None else shape
    return tuple(None if size < 0 else int(size) for size in sizes)


def _text(name):
    return "" if name is None else name.decode(errors="replace")


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
    """A constant in a LiteRT file, such as a table or matrix."""

    name: str
    dtype: str
    shape: tuple
    bytes: int


@dataclasses.dataclass(frozen=True)
class LiteRTFile:
    """The contents of a LiteRT file; `print` it."""

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
        """Bytes of all constants."""
        return sum(constant.bytes for constant in self.constants)

    @property
    def graph_bytes(self):
        """Bytes of the graph: all except constants and metadata."""
        rest = self.constant_bytes + sum(self.metadata.values())
        return self.file_bytes - rest

    def to_dict(self):
        """All fields as a dict that `json` can write."""
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
        # Spaces that do not break a line.
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
            yield '  Flex ops need the library "Select TF ops" in the app.'
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
    """Whether any op is of tensorflow-text."""
    return any(name.startswith(_TF_TEXT_OPS) for name in ops)


def _explain(names):
    if names <= _MEDIAPIPE_OPS and MEDIAPIPE_TOKENIZER in names:
        return "Only MediaPipe Tasks has these CUSTOM ops."
    others = names - _MEDIAPIPE_OPS
    if has_tf_text(names) and all(x.startswith(_TF_TEXT_OPS) for x in others):
        return "CUSTOM ops are in tensorflow-text; the app must add them."
    return "CUSTOM ops are in no runtime; the app must add them."


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
    """Lines of aligned columns; the first `right` columns align right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if place < right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
