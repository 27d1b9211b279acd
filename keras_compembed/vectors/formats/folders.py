"""Folders of Hugging Face models and of model2vec, local or on the Hub."""

import json
import os

import numpy as np

from keras_compembed.utils.extras import import_extra
from keras_compembed.vectors.formats import arrays
from keras_compembed.vectors.formats.words import find_words

HUB = "hf://"
_MODEL = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# Names of token tables, after the prefix of the model. An encoder and a decoder
# share the first.
_TABLES = (
    "shared", "word_embeddings", "word_embedding", "embed_tokens",
    "tok_embeddings", "token_embedding", "embed_in", "wte", "embeddings",
    "embedding",
)  # fmt: skip
# Files of model2vec's table: in its own folders, and in those of
# sentence-transformers.
_STATIC = (
    ("", "embeddings"),
    ("", "embedding.weight"),
    ("0_StaticEmbedding/", "embedding.weight"),
)


def _finder(path):
    """A function from the name of a file to its path, or to None."""
    if not path.startswith(HUB):
        paths = os.path.join(path, "{}")

        def find(name):
            found = paths.format(name)
            return found if os.path.isfile(found) else None

        return find
    hub = import_extra("huggingface_hub", "hub")
    errors = import_extra("huggingface_hub.errors", "hub")
    repository, _, revision = path.removeprefix(HUB).partition("@")

    def fetch(name):
        try:
            return hub.hf_hub_download(
                repository, name, revision=revision or None
            )
        except errors.LocalEntryNotFoundError:
            raise  # Offline.
        except errors.EntryNotFoundError:
            return None

    return fetch


def find_static(path):
    """The paths of model2vec's table and tokens and the table's name."""
    find = _finder(path)
    for place, name in _STATIC:
        table, words = find(place + _MODEL), find(f"{place}tokenizer.json")
        if table and words and name in arrays.tensor_shapes(table):
            return table, words, name
    return None


def read_model2vec(path, options):
    found = find_static(path)
    if found is None:
        raise ValueError("it has no table of model2vec with tokenizer.json")
    path, words, name = found
    shapes = arrays.tensor_shapes(path)
    columns = {}
    for part in ("mapping", "weights"):
        if part in shapes:
            shape, dtype, start = arrays.find_tensor(path, part)
            columns[part] = np.fromfile(path, dtype, shape[0], offset=start)
    mapping, weights = columns.get("mapping"), columns.get("weights")
    shape, dtype, start = arrays.find_tensor(path, name)
    arrays.check_table(shape, dtype)
    if mapping is None:
        mapping = np.arange(shape[0])
    if mapping.min() < 0 or mapping.max() >= shape[0]:
        raise ValueError("'mapping' has rows that are not in its table")
    if weights is not None and len(weights) != len(mapping):
        raise ValueError("'weights' must have one number for each token")
    words = find_words(options, len(mapping), words)
    mapping = mapping[: options.limit]
    table = np.empty((len(mapping), shape[1]), "float32")
    with open(path, "rb") as stream:
        stream.seek(start)
        for place, part in arrays.read_blocks(stream, shape, dtype):
            here = (mapping >= place.start) & (mapping < place.stop)
            rows = np.flatnonzero(here)
            table[rows] = part[mapping[rows] - place.start]
            if weights is not None:
                table[rows] *= weights[rows, None]
    return words, table


def read_hugging_face(path, options):
    find = _finder(path)
    words = next(filter(None, map(find, arrays.WORD_FILES)), None)
    model, index, places = find(_MODEL), None, {}
    if model:
        names = arrays.tensor_shapes(model)
    elif index := find(_INDEX):
        with open(index, encoding="utf-8") as file:
            names = places = json.load(file)["weight_map"]
    else:
        raise ValueError(f"it has neither {_MODEL} nor {_INDEX}")
    name = _choose(names, options.tensor)
    if places:
        place = places[name]
        # Refuse paths outside the folder.
        model = os.path.basename(place) == place and find(place)
        if not model or name not in arrays.tensor_shapes(model):
            raise ValueError(f"{_INDEX} says {place!r}, which lacks {name!r}")
    return arrays.read_tensor(model, name, options, words, names)


def _choose(names, tensor):
    """The name of the token table among tensor names."""
    found = [tensor] if tensor in names else []
    for table in _TABLES if tensor is None else ():
        ending = f".{table}.weight"
        found = [name for name in names if f".{name}".endswith(ending)]
        if found:
            break
    if len(found) != 1:
        raise ValueError(
            "`tensor` must name its token table, one of "
            f"{(found or list(names))[:12]}, not {tensor}"
        )
    return found[0]
