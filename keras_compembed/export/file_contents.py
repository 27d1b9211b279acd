"""Labels, vocabulary and metadata in LiteRT files."""

import collections
import dataclasses
import io
import zipfile

import flatbuffers
import numpy as np
from flatbuffers.number_types import Int8Flags
from flatbuffers.number_types import UOffsetTFlags
from flatbuffers.table import Table

from keras_compembed.litert.flatbuffer import add_buffer
from keras_compembed.litert.flatbuffer import schema
from keras_compembed.litert.flatbuffer import write_model
from keras_compembed.utils.validation import check_text
from keras_compembed.utils.validation import require

ENTRY = b"TFLITE_METADATA"
_IDENTIFIER = b"M001"
# Slots of fields in their tables: ModelMetadata,
_ABOUT = {"name": 0, "description": 1, "version": 2, "author": 4, "license": 5}
_SUBGRAPHS, _MIN_PARSER = 3, 7
# SubGraphMetadata,
_INPUTS, _OUTPUTS = 2, 3
# TensorMetadata,
_TENSOR_NAME, _TENSOR_FILES = 0, 6
# AssociatedFile.
_FILE_NAME, _FILE_KIND = 0, 2
# Kinds of files: labels of places in the last axis, labels of the values of a
# tensor, words by their ids.
UNKNOWN, AXIS_LABELS, VALUE_LABELS, VOCABULARY = 0, 2, 3, 5
# Versions of the schema; older readers refuse a file.
_FIRST, _WITH_VOCABULARY = "1.0.0", "1.0.1"


# A file in the zip archive at the end of a model.
AttachedFile = collections.namedtuple(
    "AttachedFile", ("name", "content", "kind")
)


@dataclasses.dataclass(frozen=True)
class FileMetadata:
    """Metadata of a LiteRT file: name, author and so on."""

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
                    f"`{name}` of `metadata` must be None or a non-empty "
                    "string.",
                    **{name: value},
                )
                check_text(name, value)


def add_metadata(model, file_metadata, inputs, outputs):
    """Adds metadata of a model, its inputs and outputs, in place."""
    kinds = {file.kind for files in inputs.values() for file in files}
    about = {slot: getattr(file_metadata, x) for x, slot in _ABOUT.items()}
    builder = flatbuffers.Builder(1024)
    root = _write(
        builder,
        {
            **about,
            _SUBGRAPHS: [
                {_INPUTS: _tensors(inputs), _OUTPUTS: _tensors(outputs)}
            ],
            _MIN_PARSER: _WITH_VOCABULARY if VOCABULARY in kinds else _FIRST,
        },
    )
    builder.Finish(root, file_identifier=_IDENTIFIER)
    entry = schema.MetadataT()
    entry.name = ENTRY
    content = np.frombuffer(bytes(builder.Output()), "uint8")
    entry.buffer = add_buffer(model, content)
    model.metadata = [*(model.metadata or ()), entry]


def _tensors(ends):
    # MediaPipe needs a name for each tensor.
    return [
        {
            _TENSOR_NAME: name,
            _TENSOR_FILES: [
                {_FILE_NAME: file.name, _FILE_KIND: file.kind} for file in files
            ],
        }
        for name, files in ends.items()
    ]


def _write(builder, fields):
    """Place of a table with fields of strings, small numbers or tables."""
    fields = {
        slot: value
        for slot, value in fields.items()
        if value not in (None, 0, [])
    }
    places = {}
    for slot, value in fields.items():
        if isinstance(value, str):
            places[slot] = builder.CreateString(value)
        elif isinstance(value, list):
            parts = [_write(builder, part) for part in value]
            builder.StartVector(4, len(parts), 4)
            for part in reversed(parts):
                builder.PrependUOffsetTRelative(part)
            places[slot] = builder.EndVector()
    builder.StartObject(max(fields, default=0) + 1)
    for slot, value in fields.items():
        if slot in places:
            builder.PrependUOffsetTRelativeSlot(slot, places[slot], 0)
        else:
            builder.PrependInt8Slot(slot, value, 0)
    return builder.EndObject()


def read_metadata(content):
    """Metadata and files of outputs, from any writer."""
    start = flatbuffers.encode.Get(UOffsetTFlags.packer_type, content, 0)
    root = Table(content, UOffsetTFlags.py_type(start))
    # Drop empty fields.
    about = {
        name: text
        for name, slot in _ABOUT.items()
        if (text := _string(root, slot)) and text.strip()
    }
    outputs = [
        [
            (_string(file, _FILE_NAME), _int8(file, _FILE_KIND))
            for file in _tables(tensor, _TENSOR_FILES)
        ]
        for graph in _tables(root, _SUBGRAPHS)[:1]
        for tensor in _tables(graph, _OUTPUTS)
    ]
    return FileMetadata(**about), outputs


def _string(table, slot):
    place = table.Offset(4 + 2 * slot)
    if not place:
        return None
    return table.String(place + table.Pos).decode(errors="replace")


def _int8(table, slot):
    place = table.Offset(4 + 2 * slot)
    return table.Get(Int8Flags, place + table.Pos) if place else 0


def _tables(table, slot):
    place = table.Offset(4 + 2 * slot)
    if not place:
        return []
    start = table.Vector(place)
    return [
        Table(table.Bytes, table.Indirect(start + 4 * index))
        for index in range(table.VectorLen(place))
    ]


class FileContents:
    """Labels, vocabulary and metadata to add to a file."""

    def __init__(self, labels, metadata, task):
        require(
            labels is None or task != "embedder",
            "`labels` must be None with task='embedder', which has no classes.",
            labels=type(labels),
        )
        self._given = labels
        self._metadata = metadata
        self._needs_labels = task == "classifier"

    def check(self, outputs, class_sizes):
        self._kinds = {
            name: AXIS_LABELS if array.dtype.kind == "f" else VALUE_LABELS
            for name, array in outputs.items()
        }
        # Labels name the ids of the best classes, not their probabilities.
        best = {
            name.removesuffix("ids") + part
            for name in class_sizes
            for part in ("probabilities", "scores")
        }
        sizes = class_sizes | {
            name: array.shape[-1]
            for name, array in outputs.items()
            if array.dtype.kind == "f" and array.ndim > 1 and name not in best
        }
        of_one = class_sizes and not isinstance(self._given, dict)
        self.labels = _check_labels(
            self._given, class_sizes if of_one else sizes
        )
        missing = [name for name in sizes if name not in self.labels]
        if self._needs_labels and missing:
            raise ValueError(
                "`labels` must name the classes for MediaPipe's TextClassifier."
                f" Received: no labels for the {sizes[missing[0]]} classes of "
                f"the output {missing[0]!r}. For text vectors, pass "
                "Target('mediapipe', task='embedder')."
            )

    def add_to(self, content, model, vocabulary):
        """Bytes of a file with labels, vocabulary and metadata."""
        outputs = {name: [] for name in self._kinds}
        for name, lines in self.labels.items():
            prefix = "" if len(outputs) == 1 else f"{name}_"
            text = "".join(f"{line}\n" for line in lines).encode()
            outputs[name].append(
                AttachedFile(f"{prefix}labels.txt", text, self._kinds[name])
            )
        files = sum(outputs.values(), [*vocabulary])
        if not files and self._metadata is None:
            return content
        (signature,) = model.signatureDefs
        inputs = {entry.name.decode(): vocabulary for entry in signature.inputs}
        add_metadata(
            model, FileMetadata(**self._metadata or {}), inputs, outputs
        )
        content = write_model(model)
        if not files:
            return content
        whole = io.BytesIO(content)
        # Uncompressed, because MediaPipe reads files in place.
        with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
            for file in files:
                # The default date makes equal exports equal.
                archive.writestr(zipfile.ZipInfo(file.name), file.content)
        return whole.getvalue()


def _check_labels(labels, sizes):
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        require(
            len(sizes) == 1,
            "`labels` must be a dict from output names to lists of strings "
            f"for a model with several outputs, {list(sizes)}.",
            labels=type(labels),
        )
        labels = dict.fromkeys(sizes, labels)
    require(
        labels.keys() <= sizes.keys(),
        f"`labels` must name outputs of the model, {list(sizes)}.",
        labels=list(labels),
    )
    return {
        name: _check_list(labels[name], name, size)
        for name, size in sizes.items()
        if name in labels
    }


def _check_list(labels, output, size):
    require(
        # Sets have no order.
        not isinstance(labels, (str, bytes, set, frozenset))
        and hasattr(labels, "__iter__"),
        "`labels` must be a list of strings.",
        labels=type(labels),
        output=output,
    )
    labels, known = list(labels), set()
    for place, label in enumerate(labels):
        rule = "differ from each other"
        if not isinstance(label, str) or not label.strip():
            rule = "be non-empty strings"
        elif set(label) & set("\n\r\0"):
            rule = "have no line ends: each is a line of a text file"
        elif label not in known:
            rule = None
        require(not rule, f"`labels` must {rule}.", label=label, place=place)
        check_text("labels", label)
        known.add(label)
    advice = ""
    if size == 1:
        advice = (
            " A single output is the probability of one class: pass its name, "
            "e.g. labels=['spam'], or give the model one output per class."
        )
    require(
        len(labels) == size,
        f"`labels` must name each of the {size} classes of the output "
        f"{output!r} once, in the order of its values.{advice}",
        number=len(labels),
    )
    return tuple(str(label) for label in labels)
