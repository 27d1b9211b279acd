"""Reads a file of vectors."""

import os
import warnings

from keras_compembed.presets.get_folder import HUB
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.vectors.formats import FORMATS
from keras_compembed.vectors.formats import find_format
from keras_compembed.vectors.formats.foreign import refuse
from keras_compembed.vectors.formats.format import Request
from keras_compembed.vectors.formats.hub import HubFolder
from keras_compembed.vectors.formats.source import Source
from keras_compembed.vectors.word_vectors import WordVectors


def read_vectors(
    path,
    format=None,
    *,
    words=None,
    tensor=None,
    limit=None,
    encoding="utf-8",
    unicode_errors="strict",
    subwords=False,
    verbose=1,
):
    """Reads a file of vectors.

    | `format` | files |
    |---|---|
    | `"glove"` | text, a word and its numbers on each line |
    | `"word2vec"` | the same below a line with the numbers of rows and \
columns: word2vec's text, fastText's `.vec` |
    | `"word2vec_binary"` | word2vec's `.bin` |
    | `"fasttext"` | fastText's `.bin` of words; vectors are composed with \
those of groups of letters, which `subwords` gives too |
    | `"numpy"` | `.npy`, `.npz` |
    | `"safetensors"` | one tensor of a file |
    | `"hugging_face"` | the token table of a folder of a model, or of \
`hf://user/repository`; in several files or one, of which only that of the \
table is read |
    | `"model2vec"` | a folder or repository of model2vec |
    | `"gensim"` | what gensim's `save` wrote. These are pickles, which may \
run any program when they are opened: they are only opened with \
`format="gensim"`, so that nobody does by mistake |

    Files may be compressed by gzip, xz, bzip2 or zip. They are read as they
    are decompressed.

    A word of a text file may have spaces: numbers are counted from the end of
    its line, as many as the header names or most of the first lines have.
    Where a word stands twice, its first row is taken, as gensim does, with a
    warning.

    Example:

    >>> with open("vectors.txt", "w") as file:
    ...     lines = file.write("cat 0.5 1\\ndog 0.25 2\\n")
    >>> vectors = read_vectors("vectors.txt")
    >>> vectors.words, vectors.vectors.shape
    (['cat', 'dog'], (2, 2))

    Args:
        path: String or path-like, a file or a folder.
        format: Optional string, a name of the table above. Defaults to `None`:
            what the file looks like.
        words: List of strings, path of a list with a word a line, or path of a
            `tokenizer.json`: the words of the rows of arrays and tensors.
            Defaults to what stands beside them: the array of strings in a
            `.npz`, `tokenizer.json` or `vocab.txt` in the same folder.
        tensor: Optional string, the name of the table in a file that holds
            several arrays.
        limit: Optional integer, how many of the first rows to read. Defaults
            to all.
        encoding: String, how words are written. Defaults to `"utf-8"`.
        unicode_errors: String, what is done with bytes that no character is
            written as, such as those of a word that was cut: `"strict"` (an
            error, the default), `"ignore"`, `"replace"` or
            `"backslashreplace"`.
        subwords: Boolean or integer, whether vectors of groups of letters are
            read too, for words that have none of their own: at most so many,
            or as many as words if `True`. Those are read that most words of
            the file use. For `"fasttext"`, and gensim's models of fastText.
            Defaults to `False`.
        verbose: `0` or `1`, whether to show progress. Defaults to `1`. Small
            files show none.

    Returns:
        A `keras_compembed.vectors.WordVectors` of float32 vectors, whatever
        the file holds.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not of a format that is known, or breaks its rules.
            The message names the line, or the byte.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            "`path` must be a string or a path. "
            f"Received: path={path!r} (of type {type(path).__name__})."
        )
    if format is not None:
        format = FORMATS[check_choice("format", format, list(FORMATS))]
    if limit is not None:
        limit = check_positive_int("limit", limit)
    check_choice(
        "unicode_errors",
        unicode_errors,
        ("strict", "ignore", "replace", "backslashreplace"),
    )
    _check_encoding(encoding)
    if not isinstance(subwords, bool):
        subwords = check_positive_int("subwords", subwords)
    if os.fspath(path).startswith(HUB):
        source = HubFolder(path)
    else:
        source = Source(path)
    if format is None:
        format = find_format(source)
    elif format is not FORMATS["gensim"]:
        refuse(source)
    if source.is_folder != format.is_folder:
        kinds = ("a file", "a folder")
        raise ValueError(
            f"`path` must name {kinds[format.is_folder]} for the format "
            f"{format.name!r}. Received: {kinds[source.is_folder]}, {source}. "
            "Leave `format` out to have it found."
        )
    given = {"words": words, "tensor": tensor, "subwords": subwords or None}
    for name, value in given.items():
        if value is not None and name not in format.takes:
            raise ValueError(
                f"`{name}` must not be given for files of the format "
                f"{format.name!r}. Received: {name}={value!r} and {source}."
            )
    if tensor is not None and not isinstance(tensor, str):
        raise ValueError(
            f"`tensor` must be a string. Received: tensor={tensor!r}."
        )
    request = Request(
        words, tensor, limit, encoding, unicode_errors, verbose, subwords
    )
    rows = format.read(source, request)
    if rows.remark:
        warnings.warn(rows.remark, stacklevel=2)
    return WordVectors(rows.words, rows.vectors, rows.subwords)


def _check_encoding(encoding):
    try:
        # Line ends and spaces are looked for as bytes.
        is_fit = "a 1\n".encode(encoding) == b"a 1\n"
    except (LookupError, TypeError, ValueError):
        is_fit = False
    if not is_fit:
        raise ValueError(
            "`encoding` must be one that Python knows, and writes ASCII as "
            f"ASCII, such as 'utf-8' or 'latin-1'. Received: "
            f"encoding={encoding!r}."
        )
