"""The token table out of a folder of a Hugging Face model."""

import json

from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.safetensors_file import open_tensors
from keras_compembed.vectors.formats.safetensors_file import read_table
from keras_compembed.vectors.formats.source import Source

_MODEL = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_WORDS = ("tokenizer.json", "vocab.txt")
# What token tables are called, behind the names of their models. An encoder
# and a decoder that share one have it as the first of these.
_TABLES = (
    "shared.weight",
    "word_embeddings.weight",
    "word_embedding.weight",
    "embed_tokens.weight",
    "tok_embeddings.weight",
    "token_embedding.weight",
    "embed_in.weight",
    "wte.weight",
    "embeddings.weight",
    "embedding.weight",
)


def _looks_like(source):
    return source.is_folder and bool(
        source.find("config.json")
        and (source.find(_MODEL) or source.find(_INDEX))
    )


def _read(source, request):
    words = next(filter(None, map(source.find, _WORDS)), None)
    if words is None and request.words is None:
        raise ValueError(
            f"{source} must hold the tokens of the model. Received: a folder "
            f"without {' and '.join(_WORDS)}. Pass `words=`, the path of one."
        )
    path = source.find(_MODEL)
    if path:
        shard = Source(path)
        with open_tensors(shard) as tensors:
            name = _choose(source, tensors.shapes, request.tensor)
            return read_table(shard, request, tensors, name, words)
    index = source.find(_INDEX)
    if not index:
        pickle = source.find("pytorch_model.bin")
        raise ValueError(
            f"{source} must hold {_MODEL} or {_INDEX}. Received: a folder "
            + ("with pytorch_model.bin, a pickle" if pickle else "without")
            + ". Save the model anew with `safe_serialization=True`."
        )
    places = _read_index(index)
    name = _choose(source, places, request.tensor)
    path = source.find(places[name])
    if not path:
        raise ValueError(
            f"{source} must hold the files that {_INDEX} names. Received: no "
            f"{places[name]!r}, where the tensor {name!r} is. Fetch that file."
        )
    shard = Source(path)
    with open_tensors(shard) as tensors:
        if name not in tensors.shapes:
            raise ValueError(
                f"{shard} must hold what {_INDEX} says. Received: no tensor "
                f"{name!r}. Fetch both files again."
            )
        return read_table(shard, request, tensors, name, words)


def _read_index(path):
    """The files of tensors, by their names."""
    source = Source(path)
    try:
        with open(path, encoding="utf-8") as file:
            places = json.load(file)["weight_map"]
        # No paths that lead out of the folder.
        if all(
            isinstance(place, str) and "/" not in place and "\\" not in place
            for place in places.values()
        ):
            return places
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        pass
    raise ValueError(
        f"{source} must hold a `weight_map` with the file of each tensor. "
        "Received: other contents. Fetch the file again."
    )


def _choose(source, names, tensor):
    """The name of the token table among those of tensors."""
    if tensor is None:
        for ending in _TABLES:
            found = [n for n in names if f".{n}".endswith(f".{ending}")]
            if len(found) == 1:
                return found[0]
            if found:
                break
        else:
            found = list(names)
    elif tensor in names:
        return tensor
    else:
        found = list(names)
    known = ", ".join(map(repr, found[:12]))
    more = f" and {len(found) - 12} more" if len(found) > 12 else ""
    raise ValueError(
        f"`tensor` must name the token table of {source}, one of {known}"
        f"{more}. Received: tensor={tensor!r}."
    )


HUGGING_FACE = Format(
    "hugging_face", _looks_like, _read, ("words", "tensor"), True
)
