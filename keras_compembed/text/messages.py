"""SentencePiece's protocol messages, the part of them that is needed."""

import functools

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory

_PACKAGE = "keras_compembed.sentencepiece"
# https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
# Name of a field: number, type, default.
_MESSAGES = {
    "TrainerSpec": {
        "model_type": (3, "int32", "1"),
        "vocab_size": (4, "int32", "8000"),
        "treat_whitespace_as_suffix": (24, "bool", "false"),
        "unk_id": (40, "int32", "0"),
        "bos_id": (41, "int32", "1"),
        "eos_id": (42, "int32", "2"),
        "pad_id": (43, "int32", "-1"),
    },
    "NormalizerSpec": {
        "name": (1, "string", None),
        "precompiled_charsmap": (2, "bytes", None),
        "add_dummy_prefix": (3, "bool", "true"),
        "remove_extra_whitespaces": (4, "bool", "true"),
        "escape_whitespaces": (5, "bool", "true"),
    },
    "SentencePiece": {
        "piece": (1, "string", None),
        "score": (2, "float", None),
        "type": (3, "int32", "1"),
    },
    "ModelProto": {
        "pieces": (1, "SentencePiece", None),
        "trainer_spec": (2, "TrainerSpec", None),
        "normalizer_spec": (3, "NormalizerSpec", None),
    },
}


@functools.cache
def get_class(name):
    """Class of a message, e.g. `"ModelProto"`."""
    return message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    )


@functools.cache
def _pool():
    file = descriptor_pb2.FileDescriptorProto(
        name="keras_compembed/sentencepiece.proto",
        package=_PACKAGE,
        syntax="proto2",
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, default) in fields.items():
            _add_field(message, field, number, kind, default)
    # One of its own: others may know messages of the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(message, name, number, kind, default):
    types = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=number)
    field.label = types.LABEL_OPTIONAL
    if kind in _MESSAGES:
        field.type = types.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = types.Type.Value(f"TYPE_{kind.upper()}")
    if name == "pieces":
        field.label = types.LABEL_REPEATED
    if default is not None:
        field.default_value = default
