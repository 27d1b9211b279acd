"""Files of `CompressedVectors`: what they keep, and damaged ones."""

import concurrent.futures
import io
import json
import threading
import zipfile

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

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
    elif kind == "linear":
        composition = ("linear", 3)
        layer = kc.CodeEmbedding(rows, WIDTH, 3, 5, composition)
        layer.build()
    elif kind == "rounded":
        layer = kc.QuantizedEmbedding.from_table(table, 4, 4, verbose=0)
    else:
        layer = kc.ANTEmbedding.from_table(table, 4, 2, verbose=0)
    return layer


KINDS = "codes", "linear", "rounded", "anchors", "subwords"
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


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
        for _ in range(10):
            path.unlink(missing_ok=True)
            assert sum(pool.map(save, range(8))) == 1
    assert list(tmp_path.iterdir()) == [path]


def load_damaged(path, data, table):
    """Loads a file that may be damaged; it is refused, or right."""
    path.write_bytes(data)
    try:
        small = CompressedVectors.load(path)
    except ValueError as error:
        assert path.name in str(error)
        return
    assert small.words == WORDS
    np.testing.assert_array_equal(all_vectors(small), table)


@hypothesis.settings(
    max_examples=100, deadline=None, derandomize=True, database=None
)
@hypothesis.given(
    st.sampled_from(KINDS),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 40),
    st.binary(max_size=30),
)
def test_damaged_files(files, folder, kind, place, cut, new):
    data, table = files[kind]
    start = int(place * len(data))
    damaged = data[:start] + new + data[start + cut :]
    load_damaged(folder / "damaged.npz", damaged, table)
    (folder / "cut.npz").write_bytes(data[:start])
    with pytest.raises(ValueError, match="cut.npz' cannot be read"):
        CompressedVectors.load(folder / "cut.npz")


def rewritten(data, **changes):
    """The file with other entries in its header."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(file, "w") as new,
    ):
        for name in old.namelist():
            content = old.read(name)
            if name == "header.npy":
                header = np.load(io.BytesIO(content)).tobytes()
                header = json.dumps({**json.loads(header), **changes})
                part = io.BytesIO()
                np.save(part, np.frombuffer(header.encode(), "uint8"))
                content = part.getvalue()
            new.writestr(name, content)
    return file.getvalue()


VALUES = [None, True, -2, 0, 9, 0.5, np.nan, "lstm", "anchors", [3, 9], {}]
VALUES.append({"min_n": 0, "max_n": 3, "bucket": 9})


@pytest.mark.parametrize("kind", KINDS)
def test_headers_of_other_files(files, folder, kind):
    data, _ = files[kind]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        header = np.load(io.BytesIO(archive.read("header.npy"))).tobytes()
    path = folder / "header.npz"
    for name in json.loads(header):
        for value in VALUES:
            path.write_bytes(rewritten(data, **{name: value}))
            try:
                small = CompressedVectors.load(path)
            except ValueError as error:
                assert path.name in str(error)
                continue
            # What cannot be told from a file that was written so.
            assert small.table().shape[0] == len(small) == len(WORDS)
            small.most_similar(small.words[0])
            small.get(UNKNOWN)


def test_foreign_files(tmp_path):
    np.savez(tmp_path / "a.npz", rows=np.eye(2))
    np.savez_compressed(tmp_path / "b.npz", header=np.zeros(3, "uint8"))
    np.save(tmp_path / "c.npz.npy", np.eye(2))
    (tmp_path / "d.npz").write_text("word 1 2 3\n")
    (tmp_path / "e.npz").touch()
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match="cannot be read as"):
            CompressedVectors.load(path)
    with pytest.raises(FileNotFoundError):
        CompressedVectors.load(tmp_path / "gone.npz")
    with pytest.raises(IsADirectoryError):
        CompressedVectors.load(tmp_path)
