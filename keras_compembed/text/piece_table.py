"""Reads, builds and shrinks SentencePiece models."""

import collections
import functools
import itertools
import pathlib
import tempfile

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory

from keras_compembed.utils.extras import import_extra

# Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
FOUND = (NORMAL, USER_DEFINED)
UNIGRAM = 1
# SentencePiece's sign for a space; it also precedes the first word.
SPACE = "\u2581"
# Name of rules that `compact` has reduced.
_COMPACT = "compact"
# The needed part of SentencePiece's protocol messages.
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
# Whitespace, which becomes `SPACE` in pieces.
_SPACES = " \t\r\n"
# The first code to try for characters of 1 to 4 bytes.
_FIRST = {1: 1, 2: 0x80, 3: 0x800, 4: 0x10000}
_LAST = {1: 0x7F, 2: 0x7FF, 3: 0xFFFF, 4: 0x10FFFF}


# A piece, with its content as bytes; its id is its place in the list.
Piece = collections.namedtuple(
    "Piece", "content score kind", defaults=(0.0, NORMAL)
)


@functools.cache
def _class_of(name):
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
    types = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for name, (number, kind, default) in fields.items():
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
    # A separate pool: others may have messages of the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def parse(model):
    proto = _class_of("ModelProto")()
    reason = None
    try:
        proto.ParseFromString(model)
    except Exception as error:
        reason = error
    kinds = {place: each.type for place, each in enumerate(proto.pieces)}
    if reason or kinds.get(proto.trainer_spec.unk_id) != UNKNOWN:
        raise ValueError(
            "`model` must be a SentencePiece model, the bytes of a `.model` "
            f"file. Received: {len(model)} other bytes."
        ) from reason
    return proto


def build(pieces, replacements, eos_id=-1):
    """Bytes of a model of given pieces."""
    (unknown_id,) = (
        place for place, each in enumerate(pieces) if each.kind == UNKNOWN
    )
    # Written by hand: this `string` field may be no UTF-8.
    body = b"".join(_field(1, _write_piece(piece)) for piece in pieces)
    trainer = _class_of("TrainerSpec")(
        unk_id=unknown_id, bos_id=-1, eos_id=eos_id, pad_id=-1
    )
    normalizer = _class_of("NormalizerSpec")(
        precompiled_charsmap=_compile(replacements),
        add_dummy_prefix=True,
        remove_extra_whitespaces=True,
        escape_whitespaces=True,
    )
    return (
        body
        + _field(2, trainer.SerializeToString())
        + _field(3, normalizer.SerializeToString())
    )


def compact(proto):
    """Makes a model as small as possible with the same ids."""
    spec = proto.normalizer_spec
    if spec.name == _COMPACT:
        return
    pieces = [each.piece for each in proto.pieces if each.type in FOUND]
    rules = compact_rules(read_rules(spec.precompiled_charsmap), pieces)
    spec.precompiled_charsmap = _compile(rules)
    spec.name = _COMPACT
    # Older packages store test texts in a model.
    proto.DiscardUnknownFields()


def needed_pieces(proto):
    """Places of the pieces that each smaller model must keep."""
    found = {
        place
        for place, piece in enumerate(proto.pieces)
        if piece.type != NORMAL or len(piece.piece) == 1
    }
    scores = {
        place: piece.score
        for place, piece in enumerate(proto.pieces)
        if piece.type in FOUND
    }
    return found | {min(scores, key=scores.get)} if scores else found


def select(proto, places):
    """A `ModelProto` with some of the pieces, including `needed_pieces`."""
    new = type(proto)()
    new.CopyFrom(proto)
    del new.pieces[:]
    new.pieces.extend(proto.pieces[place] for place in places)
    spec = new.trainer_spec
    spec.vocab_size = len(places)
    for name in ("unk_id", "bos_id", "eos_id", "pad_id"):
        place = getattr(spec, name)
        is_there = 0 <= place < len(proto.pieces)
        setattr(spec, name, places.index(place) if is_there else -1)
    # Fewer pieces need fewer rules.
    new.normalizer_spec.name = ""
    return new


def count_bytes(tokenizer):
    """Bytes of a `FastSentencepieceTokenizer` in a file."""
    # There is no public attribute.
    return int(tokenizer._converted_model.shape[0])


def _compile(replacements):
    """The table of replacements in SentencePiece's own form."""
    sentencepiece = import_extra("sentencepiece", "text")
    lines = [
        f"{_codes(old)}\t{_codes(new)}" for old, new in replacements.items()
    ]
    # Silence its log of the number of rules.
    sentencepiece.set_min_log_level(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rules.tsv"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        normalizer = sentencepiece.SentencePieceNormalizer(rule_tsv=str(path))
    proto = _class_of("ModelProto")()
    proto.ParseFromString(normalizer.serialized_model_proto())
    return proto.normalizer_spec.precompiled_charsmap


def _codes(text):
    return " ".join(f"{ord(character):X}" for character in text)


def _write_piece(piece):
    message = _class_of("SentencePiece")(score=piece.score, type=piece.kind)
    return _field(1, piece.content) + message.SerializeToString()


def _field(number, content):
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number):
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def compact_rules(rules, pieces):
    """Fewer and simpler rules with the same ids for every text."""
    known = set(_SPACES).union(*pieces)
    kept, droppable = {}, {}
    simplify = _Simplify(known)
    for old, new in rules.items():
        simple = new.translate(simplify)
        is_droppable = (
            known.isdisjoint(old)
            and known.isdisjoint(new)
            and len(old.encode()) == len(new.encode())
        )
        # A rule must change its string.
        (droppable if is_droppable else kept)[old] = (
            simple if simple != old else new
        )
    # Without a rule of several characters, another rule may apply to one of
    # them.
    several = {old: new for old, new in droppable.items() if len(old) > 1}
    beginnings = {old[0] for old in kept}
    while several:
        needed = [old for old in several if not beginnings.isdisjoint(old)]
        if not needed:
            break
        for old in needed:
            kept[old] = several.pop(old)
            beginnings.add(old[0])
    if not kept:
        # Without any rule, the tokenizer reads beyond the end.
        one, other = (chr(code) for code in _unknown_codes(4, known, 2))
        kept[one] = other
    return kept


# Trained models share a few tables.
@functools.lru_cache(maxsize=1)
def read_rules(table):
    """Rules in SentencePiece's own form, as a dict."""
    if not table:
        return {}
    size = int.from_bytes(table[:4], "little")
    nodes = np.frombuffer(table, "<u4", size // 4, 4)
    strings = table[4 + size :]
    offsets = (nodes >> 10) << ((nodes & 0x200) >> 6)
    behind = (np.arange(len(nodes)) ^ offsets).tolist()
    has_leaf = (nodes & 0x100).astype(bool).tolist()
    labels = nodes & 0x800000FF
    every_byte = np.arange(1, 256)

    # Many prefixes share suffixes.
    @functools.cache
    def endings(node):
        base = behind[node]
        found = []
        if has_leaf[node] and node:
            start = int(nodes[base] & 0x7FFFFFFF)
            found.append((b"", strings[start : strings.index(b"\0", start)]))
        places = base ^ every_byte
        bytes_here = every_byte[places < len(nodes)]
        bytes_here = bytes_here[labels[base ^ bytes_here] == bytes_here]
        for byte in bytes_here.tolist():
            label = bytes([byte])
            found += [
                (label + ending, new) for ending, new in endings(base ^ byte)
            ]
        return found

    return {old.decode(): new.decode() for old, new in endings(0)}


class _Simplify(dict):
    """For `str.translate`: replaces all unknown characters by one."""

    def __init__(self, known):
        super().__init__()
        self._known = known
        self._unknown = {}

    def __missing__(self, code):
        character = chr(code)
        found = character
        if character not in self._known:
            size = len(character.encode())
            if size not in self._unknown:
                (unknown,) = _unknown_codes(size, self._known, 1)
                self._unknown[size] = chr(unknown)
            found = self._unknown[size]
        self[code] = found
        return found


def _unknown_codes(size, known, count):
    """The first `count` unknown characters of `size` bytes."""
    codes = range(_FIRST[size], _LAST[size] + 1)
    unknown = (code for code in codes if chr(code) not in known)
    return list(itertools.islice(unknown, count))
