"""Files of `CompressedVectors`: what they keep, and damaged ones."""

import concurrent.futures
import json
import threading

import numpy as np
import pytest
from vector_files import damage

import keras_compembed as kc
from keras_compembed.vectors import CompressedVectors
from keras_compembed.vectors import WordVectors
from keras_compembed.vectors.word_vectors import Subwords

WIDTH = 6


def make_layer(kind, rows):
    table = np.random.default_rng(0).normal(size=(rows, WIDTH))
    if kind == "codes":
        layer = kc.CodeEmbedding(rows, WIDTH, 3, 5)
        layer.build()
    elif kind == "rounded":
        layer = kc.QuantizedEmbedding.from_table(table, 4, 4, verbose=0)
    else:
        layer = kc.ANTEmbedding.from_table(table, 4, 2, verbose=0)
    return layer


KINDS = "codes", "rounded", "anchors", "subwords"
# It has no vector of its own.
UNKNOWN = "bc"
WORDS = ["a", "b c", "naïve", "d", "e"]


def make_vectors(kind):
    if kind != "subwords":
        return CompressedVectors(WORDS, make_layer(kind, len(WORDS)))
    rows = np.random.default_rng(0).normal(size=(9, WIDTH))
    subwords = Subwords(1, 3, rows[5:], 9, [1, 2, 5, 8])
    return CompressedVectors.learn(
        WordVectors(WORDS, rows[:5], subwords),
        kc.methods.Codes(3, 5),
        seed=0,
        verbose=0,
    )


def all_vectors(small):
    subwords = small.subwords()
    if subwords is None:
        return small.table()
    return np.concatenate([small.table(), small[[UNKNOWN]], subwords.vectors])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Bytes of a file of each kind, and its vectors."""
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for kind in KINDS:
        small = make_vectors(kind)
        small.save(folder / f"{kind}.npz")
        data = (folder / f"{kind}.npz").read_bytes()
        found[kind] = data, all_vectors(small)
    return found


def test_any_words_survive(tmp_path):
    path = tmp_path / "small.npz"
    for words in (
        ["two\nlines", "tab\t", "", " "],
        ["\0", "\n", "\u2028", "\ud800"],
    ):
        small = CompressedVectors(words, make_layer("codes", 4))
        small.save(path, overwrite=True)
        loaded = CompressedVectors.load(path)
        assert loaded.words == words
        np.testing.assert_array_equal(loaded.table(), small.table())
        with pytest.raises(ValueError, match="`save` keeps such words"):
            small.save_word2vec_format(tmp_path / "small.txt")
        assert list(tmp_path.iterdir()) == [path]
    # No character is left to stand between them.
    words = ["".join(map(chr, range(32))), "b"]
    small = CompressedVectors(words, make_layer("rounded", 2))
    with pytest.raises(ValueError, match="below U.0020"):
        small.save(tmp_path / "other.npz")


def test_words_with_other_spaces(tmp_path):
    """What no program takes for an end of a word."""
    words = ["x\xa0y", "ﬁ", "a\x85", "\u2028"]
    small = CompressedVectors(words, make_layer("codes", 4))
    path = tmp_path / "small.txt"
    for binary in (False, True):
        small.save_word2vec_format(path, binary=binary, overwrite=binary)
        read = kc.vectors.read_vectors(path)
        assert read.words == words
        np.testing.assert_array_equal(read.vectors, small.table())
    with pytest.raises(FileExistsError):
        small.save_word2vec_format(path)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(files, tmp_path, kind):
    """They are refused, or right."""
    data, table = files[kind]
    path = tmp_path / "damaged.npz"
    for seed in range(30):
        path.write_bytes(damage(data, np.random.default_rng(seed)))
        try:
            small = CompressedVectors.load(path)
        except ValueError as error:
            assert path.name in str(error)
            continue
        assert small.words == WORDS
        np.testing.assert_array_equal(all_vectors(small), table)


def test_files_of_later_versions(files, tmp_path):
    path = tmp_path / "later.npz"
    path.write_bytes(files["subwords"][0])
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes()) | {"version": 9}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), "uint8")
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="later.npz.*install a newer one"):
        CompressedVectors.load(path)


def test_foreign_files(tmp_path):
    np.savez(tmp_path / "a.npz", rows=np.eye(2))
    np.savez(tmp_path / "b.npz", header=np.zeros(3, "uint8"))
    (tmp_path / "d.npz").write_text("word 1 2 3\n")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match="cannot be read as"):
            CompressedVectors.load(path)


def test_one_of_eight_threads_writes(tmp_path):
    small = CompressedVectors(WORDS, make_layer("codes", 5))
    path = tmp_path / "small.npz"
    barrier = threading.Barrier(8)

    def save(_):
        barrier.wait()
        try:
            small.save(path)
        except FileExistsError:
            return 0
        return 1

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            path.unlink(missing_ok=True)
            assert sum(pool.map(save, range(8))) == 1
    assert list(tmp_path.iterdir()) == [path]
