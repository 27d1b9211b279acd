"""Which kind of file a file looks like."""

import os
import zipfile

from keras_compembed.vectors.formats.arrays import is_npz
from keras_compembed.vectors.formats.folders import HUB
from keras_compembed.vectors.formats.folders import find_static
from keras_compembed.vectors.formats.gensim_files import FASTTEXT_MAGIC
from keras_compembed.vectors.formats.streams import open_stream
from keras_compembed.vectors.formats.text import BOM
from keras_compembed.vectors.formats.text import FIRST_LINES
from keras_compembed.vectors.formats.text import NUMBER
from keras_compembed.vectors.formats.text import check_no_csv
from keras_compembed.vectors.formats.text import find_columns
from keras_compembed.vectors.formats.text import find_header

_HEAD_BYTES = 1 << 16
_READ = (
    "text of GloVe or word2vec (.txt, .vec), word2vec's and fastText's .bin, "
    ".npy, .npz, .safetensors, a folder or 'hf://user/repository' of Hugging "
    "Face or model2vec with safetensors, and what gensim saved, a pickle, if "
    "you trust it and pass `format='gensim'`"
)


def find_format(path, words_are_given):
    """The name of a reader."""
    if path.startswith(HUB) or os.path.isdir(path):
        return "model2vec" if find_static(path) else "hugging_face"
    if zipfile.is_zipfile(path) and is_npz(path):
        return "numpy"
    with open_stream(path) as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(b"\x93NUMPY"):
        return "numpy"
    if head.startswith(FASTTEXT_MAGIC):
        return "fasttext"
    # It begins with the length of what this opens.
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and length < os.path.getsize(path):
        return "safetensors"
    lines = _first_lines(head)
    columns, header = find_columns(lines), find_header(lines[0])
    columns_below = find_columns(lines[1:])
    # Otherwise a word that is a number, and the one number of its vector.
    if header and (columns_below > 1 or columns_below == header[1]):
        return "word2vec"
    if header and not columns_below and any(map(bytes.strip, lines[1:])):
        return "word2vec_binary"
    check_no_csv(lines)
    if not columns or b"\0" in head:
        raise ValueError(
            f"it is none of {_READ}, and begins with {head[:32]!r}"
        )
    fields = b" ".join(lines[:FIRST_LINES]).split()
    if not words_are_given and all(map(NUMBER.fullmatch, fields)):
        raise ValueError(
            "it has numbers alone: pass `words=` for its rows, or "
            "`format='glove'` if the first number of each line is a word"
        )
    return "glove"


def _first_lines(head):
    """The lines that a file begins with; of a very long one, a part."""
    lines = head.removeprefix(BOM).split(b"\n")
    if len(head) == _HEAD_BYTES:
        end = lines.pop()  # It goes on.
        if len(lines) < 2:
            lines.append(end.rpartition(b" ")[0] or end)
    return lines
