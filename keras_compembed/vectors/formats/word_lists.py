"""The words of a table's rows."""

import os
import re

from keras_compembed.utils.extras import require
from keras_compembed.utils.validation import check_order
from keras_compembed.vectors.formats.source import Source

_READ_BYTES = 1 << 22
_COUNTED = re.compile(r"[^ \t]+[ \t]+[0-9]+[ \t]*")


def find_words(source, request, count, default=None):
    """Returns a word for each row of a table, None for a row without."""
    words = default if request.words is None else request.words
    if words is None:
        raise ValueError(
            f"`words` must be given for {source}, which holds no words: a list "
            "of strings, or the path of a file with a word on each line, for "
            f"each of its {count} rows."
        )
    if not isinstance(words, str | os.PathLike):
        words, name = _check_strings(words), "`words`"
    elif os.fspath(words).endswith(".json"):
        return _place_tokens(_read_tokenizer(words), words, source, count)
    else:
        name = repr(os.fspath(words))
        is_default = request.words is None
        words = _read_list(words, request)
        if is_default:
            # Tables of models may have more rows, for speed.
            words += [None] * (count - len(words))
    if len(words) != count:
        raise ValueError(
            f"{name} must hold a word for each row of {source}. Received: "
            f"{len(words)} words and {count} rows."
        )
    return words


def _check_strings(words):
    if not hasattr(words, "__iter__"):
        words = [words]
    words = check_order("words", words)
    for word in words:
        if not isinstance(word, str):
            raise ValueError(
                "`words` must be strings, or the path of a list. "
                f"Received: {word!r} among them."
            )
    return words


def _read_list(path, request):
    """The words of a file, a word a line."""
    source = Source(path, "words")
    if source.is_folder:
        raise ValueError(
            "`words` must be a list, or the path of a file. Received: the "
            f"folder {source}."
        )
    with source.open() as stream:
        parts = []
        while part := stream.read(_READ_BYTES):
            parts.append(part)
    data = b"".join(parts).removeprefix(b"\xef\xbb\xbf")
    # Not `splitlines`: other marks of line ends may be in words.
    lines = data.removesuffix(b"\n").split(b"\n")
    words = []
    for number, line in enumerate(lines, 1):
        try:
            words.append(request.decode(line.removesuffix(b"\r")))
        except UnicodeDecodeError:
            raise ValueError(
                f"{source} must hold a word on each line, written in "
                f"{request.encoding}. Received: line {number}: {line[:60]!r}. "
                "If another `encoding=` such as 'latin-1' does not serve, "
                "`unicode_errors='replace'` reads it."
            ) from None
    if len(words) > 1 and all(map(_COUNTED.fullmatch, words)):
        raise ValueError(
            f"{source} must hold a word on each line. Received: a word and a "
            f"number on all of its {len(words)} lines, such as {words[0]!r}. "
            "Files of counts may leave out the first rows of a table: pass a "
            "list, `words=`, with a word for each row."
        )
    return words


def _read_tokenizer(path):
    """The ids of a `tokenizer.json`, by token."""
    tokenizers = require("tokenizers", "vectors")
    Source(path, "words")  # It is there.
    try:
        return tokenizers.Tokenizer.from_file(os.fspath(path)).get_vocab()
    except Exception as error:  # The library has none of its own.
        raise ValueError(
            f"{os.fspath(path)!r} must be a `tokenizer.json` as tokenizers "
            f"writes them. Received: one that it does not read: {error}."
        ) from error


def _place_tokens(ids, path, source, count):
    words = [None] * count
    for token, row in sorted(ids.items(), key=lambda item: item[::-1]):
        if row >= count:
            raise ValueError(
                f"{os.fspath(path)!r} must hold tokens of the rows of "
                f"{source}. Received: the id {row} for {token!r}, and {count} "
                "rows."
            )
        if words[row] is not None:
            raise ValueError(
                f"{os.fspath(path)!r} must hold one token for each id. "
                f"Received: {words[row]!r} and {token!r}, both with the id "
                f"{row}. Pass a list, `words=`, with a word for each row."
            )
        words[row] = token
    return words
