"""Normalization rules that a SentencePiece model needs."""

import functools
import itertools

import numpy as np

# Whitespace becomes the sign for it, which is in pieces.
_SPACES = " \t\r\n"
# Where to begin to look for characters of 1 to 4 bytes.
_FIRST = {1: 1, 2: 0x80, 3: 0x800, 4: 0x10000}
_LAST = {1: 0x7F, 2: 0x7FF, 3: 0xFFFF, 4: 0x10FFFF}


def compact_rules(rules, pieces):
    """Fewer and simpler rules that lead to the same ids in every text."""
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
        # No rule may leave a string as it is.
        (droppable if is_droppable else kept)[old] = (
            simple if simple != old else new
        )
    # Where a rule of several characters is dropped, another may fit one of
    # them that did not get its turn before.
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
        # The tokenizer reads beyond the end of no rules at all.
        one, other = (chr(code) for code in _unknown_codes(4, known, 2))
        kept[one] = other
    return kept


# Trained models have one of a few tables.
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

    # Many beginnings share their endings.
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
    """For `str.translate`: one character in place of all unknown ones."""

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
    """The first characters of so many bytes that are not known."""
    codes = range(_FIRST[size], _LAST[size] + 1)
    unknown = (code for code in codes if chr(code) not in known)
    return list(itertools.islice(unknown, count))
