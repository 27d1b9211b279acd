"""TFLite model metadata, by its schema, in a file and out of it."""

import collections

import flatbuffers
import numpy as np
from flatbuffers.number_types import Int8Flags
from flatbuffers.number_types import UOffsetTFlags
from flatbuffers.table import Table

from keras_compembed.export.target import FileMetadata
from keras_compembed.litert.flatbuffer import add_buffer
from keras_compembed.litert.flatbuffer import schema

ENTRY = b"TFLITE_METADATA"
_IDENTIFIER = b"M001"
# Places of fields in their tables: ModelMetadata,
_ABOUT = {"name": 0, "description": 1, "version": 2, "author": 4, "license": 5}
_SUBGRAPHS, _MIN_PARSER = 3, 7
# SubGraphMetadata,
_INPUTS, _OUTPUTS = 2, 3
# TensorMetadata,
_TENSOR_NAME, _TENSOR_FILES = 0, 6
# AssociatedFile.
_FILE_NAME, _FILE_KIND = 0, 2
# Kinds of files: a label for each place of the last axis, or for each number
# that a tensor may hold; words by their ids.
UNKNOWN, AXIS_LABELS, VALUE_LABELS, VOCABULARY = 0, 2, 3, 5
# Versions of the schema: readers that are older refuse a file.
_FIRST, _WITH_VOCABULARY = "1.0.0", "1.0.1"


# A file in the zip archive behind a model.
AttachedFile = collections.namedtuple(
    "AttachedFile", ("name", "content", "kind")
)


def add_metadata(model, file_metadata, inputs, outputs):
    """Notes in a model what it is and what its ends mean, in place."""
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
    # MediaPipe reads the name of each tensor without looking if it has one.
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
    """Place of a table whose fields are strings, small numbers or tables."""
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
    """What `add_metadata` wrote, or whoever made a file."""
    start = flatbuffers.encode.Get(UOffsetTFlags.packer_type, content, 0)
    root = Table(content, UOffsetTFlags.py_type(start))
    # What is empty says nothing.
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
