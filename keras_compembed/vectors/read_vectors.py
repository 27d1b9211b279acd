"""Reads files of word vectors."""

import codecs
import dataclasses
import os
import warnings
import zipfile

import numpy as np

from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require
from keras_compembed.vectors.formats import READERS
from keras_compembed.vectors.formats import arrays
from keras_compembed.vectors.formats import text
from keras_compembed.vectors.formats.folders import HUB
from keras_compembed.vectors.formats.folders import find_static
from keras_compembed.vectors.formats.gensim_files import FASTTEXT_MAGIC
from keras_compembed.vectors.formats.streams import open_stream
from keras_compembed.vectors.vectors_file import naming
from keras_compembed.vectors.word_vectors import WordVectors

_WITH_TENSORS = "numpy", "safetensors", "hugging_face"
_WITHOUT_WORDS = *_WITH_TENSORS, "glove", "word2vec", "model2vec"
_WITH_SUBWORDS = "fasttext", "gensim"
_BLOCK_ROWS = 1 << 12
_HEAD_BYTES = 1 << 16
_READ = (
    "text of GloVe or word2vec (.txt, .vec), word2vec's and fastText's .bin, "
    ".npy, .npz, .safetensors, a folder or 'hf://user/repository' of Hugging "
    "Face or model2vec with safetensors, and pickles of gensim, if you trust "
    "them and pass `format='gensim'`"
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Arguments of `read_vectors`."""

    words: object = None
    tensor: str | None = None
    limit: int | None = None
    encoding: str = "utf-8"
    unicode_errors: str = "strict"
    subwords: int | bool = False

    def rows_of(self, count):
        return count if self.limit is None else min(count, self.limit)

    def decode(self, word):
        """Decodes a word."""
        try:
            return word.decode(self.encoding, self.unicode_errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{word[:40]!r}, which is not in {self.encoding}; pass "
                "`encoding=` or `unicode_errors=`"
            ) from error


def read_vectors(
    path: str | os.PathLike,
    format: str | None = None,
    *,
    words: list | dict | str | os.PathLike | None = None,
    tensor: str | None = None,
    limit: int | None = None,
    encoding: str = "utf-8",
    unicode_errors: str = "strict",
    subwords: bool | int = False,
) -> WordVectors:
    """Reads word vectors from a file or folder.

    | `format` | files |
    |---|---|
    | `"glove"` | text with a word and its numbers on each line |
    | `"word2vec"` | same, after a header line with the numbers of rows and \
columns: word2vec's text, fastText's `.vec` |
    | `"word2vec_binary"` | word2vec's `.bin` |
    | `"fasttext"` | fastText's `.bin`; word vectors are composed as fastText \
does |
    | `"numpy"` | `.npy`, `.npz` |
    | `"safetensors"` | one tensor of a file |
    | `"hugging_face"` | the token table of a model folder or of \
`hf://user/repository`, in one or several files |
    | `"model2vec"` | a folder or repository of model2vec |
    | `"gensim"` | files written by gensim's `save`; they are pickles, which \
can run any program, so you must name this format |

    Text, `.npy` and `.bin` files may be compressed by gzip, xz, bzip2 or zip.

    Words in text files may have spaces: numbers are counted from the end of a
    line. The header or the first lines say how many there are. If a word is
    repeated, its first row is used, with a warning.

    Example:

    >>> with open("vectors.txt", "w") as file:
    ...     lines = file.write("cat 0.5 1\\ndog 0.25 2\\n")
    >>> vectors = read_vectors("vectors.txt")
    >>> vectors.words, vectors.vectors.shape
    (['cat', 'dog'], (2, 2))

    Args:
        path: String or path-like, a file or a folder.
        format: Optional string, a name of the table above. Defaults to `None`:
            detected from the contents of the file.
        words: The words of a table that has none: a list of strings, a dict
            from words to rows, or the path of a text file (a word per line),
            `tokenizer.json` or `vocab.json`. Defaults to the array of strings
            in a `.npz`, or to `tokenizer.json`, `vocab.txt` or `vocab.json`
            next to safetensors.
        tensor: Optional string, the name of the table in a file with several
            arrays. Defaults to `None`.
        limit: Optional integer, to read only the first rows.
        encoding: String, the encoding of words. Defaults to `"utf-8"`.
        unicode_errors: String, how to handle invalid bytes, as in truncated
            words: `"strict"` (an error), `"ignore"`, `"replace"` or
            `"backslashreplace"`. Defaults to `"strict"`.
        subwords: Boolean or integer, whether to read vectors of character
            n-grams, for unknown words (OOV). `True` reads as many as there are
            words, and an integer at most that many, by use. Only for fastText's
            `.bin` with words in UTF-8. Defaults to `False`.

    Returns:
        A `keras_compembed.vectors.WordVectors` of float32 vectors.

    Raises:
        ValueError: If the file is damaged, or of another format.
    """
    path = os.fspath(path)
    if format is not None:
        check_choice("format", format, list(READERS))
    limit = check_positive_int("limit", limit, optional=True)
    if not isinstance(subwords, bool):
        subwords = check_positive_int("subwords", subwords)
    check_choice(
        "unicode_errors",
        unicode_errors,
        ("strict", "ignore", "replace", "backslashreplace"),
    )
    try:
        # Line ends and spaces are found as bytes.
        is_fit = "a 1\n".encode(encoding) == b"a 1\n"
    except LookupError:
        is_fit = False
    require(
        is_fit,
        "`encoding` must be an extension of ASCII.",
        encoding=encoding,
    )
    if not path.startswith(HUB) and not os.path.exists(path):
        raise FileNotFoundError(f"`path` must exist. Received: path={path!r}.")
    options = Options(words, tensor, limit, encoding, unicode_errors, subwords)
    if format is None:
        with naming(path, "vectors"):
            format = _find_format(path, words is not None)
    for name, value, takes in (
        ("words", words, _WITHOUT_WORDS),
        ("tensor", tensor, _WITH_TENSORS),
        ("subwords", subwords or None, _WITH_SUBWORDS),
    ):
        rule = f"`{name}` must not be given for files of {format!r}."
        require(value is None or format in takes, rule, **{name: value})
    require(
        not subwords or codecs.lookup(encoding).name == "utf-8",
        "`subwords` must be False unless words are in UTF-8.",
        encoding=encoding,
    )
    with naming(path, f"{format!r}"):
        found, table, *more = READERS[format](path, options)
        return WordVectors(*_join(path, found, table), *more)


def open_table(path: str | os.PathLike, tensor: str | None = None) -> np.memmap:
    """Opens a table in a file as a memory map, without reading it.

    Learners, and `from_table` of layers, read such a table in parts, so it may
    be larger than memory. They also accept a list of tables in order.

    Example:

    >>> for place in range(3):
    ...     np.save(f"part-{place}.npy", np.full((100, 8), place, "float32"))
    >>> table = [open_table(f"part-{place}.npy") for place in range(3)]
    >>> learner = kc.learners.AdditiveQuantizer(2, 4, verbose=0)
    >>> learner.train(table).codes.shape
    (300, 2)

    Args:
        path: String or path-like, a plain `.npy` or `.safetensors` file.
        tensor: Optional string, the name of the table in a safetensors file
            with several. Defaults to `None`: the only tensor of two axes.

    Returns:
        A `numpy.memmap`.

    Raises:
        ValueError: If the file is of another kind, or has no such table.
    """
    path = os.fspath(path)
    with naming(path, "a table"):
        with open(path, "rb") as file:
            is_npy = file.read(6) == b"\x93NUMPY"
        if is_npy:
            table = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            name = arrays.choose_tensor(arrays.tensor_shapes(path), tensor)
            shape, dtype, start = arrays.find_tensor(path, name)
            table = np.memmap(path, dtype, "r", start, shape)
        arrays.check_table(table.shape, table.dtype)
    return table


def _join(path, words, table):
    """Unique words and their rows, without a copy of the table."""
    places = {}
    for row, word in enumerate(words[: len(table)]):
        if word is not None:
            places.setdefault(word, row)
    rows = list(places.values())
    if len(rows) == len(table):
        return words[: len(table)], table
    warnings.warn(
        f"{len(table) - len(rows)} rows of {path!r} are left out: they have no "
        "word, or the word of an earlier row.",
        stacklevel=3,
    )
    # Rows only move forward.
    for start in range(0, len(rows), _BLOCK_ROWS):
        some = rows[start : start + _BLOCK_ROWS]
        table[start : start + len(some)] = table[some]
    table.resize((len(rows), table.shape[1]), refcheck=False)
    return list(places), table


def _find_format(path, words_are_given):
    """The name of a reader."""
    if path.startswith(HUB) or os.path.isdir(path):
        return "model2vec" if find_static(path) else "hugging_face"
    if zipfile.is_zipfile(path) and arrays.is_npz(path):
        return "numpy"
    with open_stream(path) as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(b"\x93NUMPY"):
        return "numpy"
    if head.startswith(FASTTEXT_MAGIC):
        return "fasttext"
    # safetensors: the length of the header comes first.
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and length < os.path.getsize(path):
        return "safetensors"
    lines = _first_lines(head)
    columns, header = text.find_columns(lines), text.find_header(lines[0])
    columns_below = text.find_columns(lines[1:])
    # Otherwise the first line is a word and a vector of one number.
    if header and (columns_below > 1 or columns_below == header[1]):
        return "word2vec"
    if header and not columns_below and any(map(bytes.strip, lines[1:])):
        return "word2vec_binary"
    text.check_no_csv(lines)
    if not columns or b"\0" in head:
        raise ValueError(f"it is none of {_READ}; it begins with {head[:32]!r}")
    fields = b" ".join(lines[: text.FIRST_LINES]).split()
    if not words_are_given and all(map(text.NUMBER.fullmatch, fields)):
        raise ValueError(
            "it has numbers alone: pass `words=` for its rows, or "
            "`format='glove'` if the first number of each line is a word"
        )
    return "glove"


def _first_lines(head):
    """The first lines of a file, and a part of a very long line."""
    lines = head.removeprefix(text.BOM).split(b"\n")
    if len(head) == _HEAD_BYTES:
        end = lines.pop()  # Incomplete.
        if len(lines) < 2:
            lines.append(end.rpartition(b" ")[0] or end)
    return lines
