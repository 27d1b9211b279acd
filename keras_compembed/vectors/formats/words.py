"""Finds the words of a table's rows."""

import json
import numbers
import os
import re
from collections.abc import Mapping

from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.validation import check_order
from keras_compembed.vectors.formats.streams import open_stream

_NUMBERED = re.compile(r"\s*[0-9]+[ \t,;]+\S.*|.*\S[ \t,;]+[0-9]+\s*")


def find_words(options, count, default=None):
    """A word for each row of a table; None for rows without any."""
    words = default if options.words is None else options.words
    if words is None:
        raise ValueError(
            f"it has no words: pass `words=` for its {count} rows, a list or "
            "the path of a file with a word on each line"
        )
    if isinstance(words, str | os.PathLike):
        is_json = os.fspath(words).endswith(".json")
        words = _read_ids(words) if is_json else _read_list(words, options)
    if isinstance(words, Mapping):
        return _place(words, count, options.limit)
    words = check_order("words", words)
    if options.limit is not None and count == options.limit:
        words = words[:count]
    if options.words is None:
        words += [None] * (count - len(words))
    if len(words) != count:
        raise ValueError(f"it has {count} rows, but {len(words)} `words`")
    return words


def _read_list(path, options):
    with open_stream(path) as stream:
        data = stream.read().removeprefix(b"\xef\xbb\xbf")
    # Not `splitlines`, which also splits at characters within words.
    lines = options.decode(data).removesuffix("\n").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    has_columns = all(re.search(r"\S[ \t,;]+\S", line) for line in lines)
    is_numbered = len(lines) > 1 and all(map(_NUMBERED.fullmatch, lines[1:]))
    if has_columns and (is_numbered or all("\t" in line for line in lines)):
        raise ValueError(
            f"`words` must have one word per line, but {os.fspath(path)!r} "
            f"has more, such as {lines[-1]!r}: pass a list, or a dict from "
            "words to rows"
        )
    return lines


def _read_ids(path):
    """Ids by words, of a `tokenizer.json` or a `vocab.json`."""
    with open(path, encoding="utf-8") as file:
        ids = json.load(file)
    if "model" in ids and "added_tokens" in ids:
        del ids  # Free memory.
        tokenizers = import_extra("tokenizers", "vectors")
        return tokenizers.Tokenizer.from_file(os.fspath(path)).get_vocab()
    return ids


def _place(ids, count, limit):
    words = [None] * count
    for word, row in ids.items():
        is_row = isinstance(row, numbers.Integral) and row >= 0
        if limit == count and is_row and row >= count:
            continue  # Rows that are not read.
        if not is_row or row >= count:
            raise ValueError(f"{word!r} has row {row!r} of {count} rows")
        if words[row] is not None:
            raise ValueError(f"{word!r} and {words[row]!r} share row {row}")
        words[row] = word
    return words
