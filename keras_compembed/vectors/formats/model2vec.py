"""Folders of model2vec: a table, and perhaps its rows of tokens and weights."""

import numpy as np

from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.safetensors_file import open_tensors
from keras_compembed.vectors.formats.source import Source
from keras_compembed.vectors.formats.word_lists import find_words

# Where model2vec looks, and what the table is called there: in its own
# folders, and in those of sentence-transformers.
_PLACES = (
    ("model.safetensors", "tokenizer.json", "embeddings"),
    ("model.safetensors", "tokenizer.json", "embedding.weight"),
    (
        "0_StaticEmbedding/model.safetensors",
        "0_StaticEmbedding/tokenizer.json",
        "embedding.weight",
    ),
)


def _find(source):
    """The paths of table and tokenizer and the table's name, or None."""
    for file, tokenizer, name in _PLACES:
        path = source.find(file)
        words = path and source.find(tokenizer)
        if words:
            with open_tensors(Source(path)) as tensors:
                if name in tensors.shapes:
                    return path, words, name
    return None


def _looks_like(source):
    try:
        return source.is_folder and _find(source) is not None
    except ValueError:
        return False  # Of a broken file, `hugging_face` tells.


def _read(source, request):
    found = _find(source)
    if found is None:
        raise ValueError(
            f"{source} must be a folder as model2vec writes it, with "
            "model.safetensors, in it the tensor 'embeddings', and "
            "tokenizer.json. Received: a folder without."
        )
    path, words, name = found
    file = Source(path)
    with open_tensors(file) as tensors:
        tables.check_shape(file, f"the tensor {name!r}", tensors.shapes[name])
        table = tensors.read(name)
        mapping = _read_column(file, tensors, "mapping")
        weights = _read_column(file, tensors, "weights")
    rows = len(table) if mapping is None else len(mapping)
    if mapping is None:
        mapping = np.arange(rows)
    elif (
        mapping.dtype.kind not in "iu"
        or not ((mapping >= 0) & (mapping < len(table))).all()
    ):
        raise ValueError(
            f"{file} must hold rows of its table in 'mapping', from 0 to "
            f"{len(table) - 1}. Received: {mapping.min()} to {mapping.max()}, "
            f"{mapping.dtype}."
        )
    if weights is not None and len(weights) != rows:
        raise ValueError(
            f"{file} must hold a weight for each token. Received: "
            f"{len(weights)} in 'weights' and {rows} tokens."
        )
    words = find_words(file, request, rows, words)
    vectors = table[mapping[: request.limit]].astype("float32")
    if weights is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            vectors *= weights[: request.limit, None].astype("float32")
    return tables.join(file, words, [vectors])


def _read_column(source, tensors, name):
    """A tensor of one axis, or None if there is none of this name."""
    if name not in tensors.shapes:
        return None
    if len(tensors.shapes[name]) != 1 or 0 in tensors.shapes[name]:
        raise ValueError(
            f"{source} must hold one axis in {name!r}. Received: the shape "
            f"{tensors.shapes[name]}."
        )
    return tensors.read(name)


MODEL2VEC = Format("model2vec", _looks_like, _read, is_folder=True)
