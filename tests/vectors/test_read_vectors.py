"""`read_vectors` on files as others write them."""

import bz2
import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest

from keras_compembed.vectors import read_vectors

# What is a number, has marks of line ends or spaces of Unicode.
WORDS = ["the", "a", "2000", "é\u0085x", "x\xa0y", "nan"]
VECTORS = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that gensim and NumPy wrote, by name."""
    gensim = pytest.importorskip("gensim")
    folder = tmp_path_factory.mktemp("vectors")
    keyed = gensim.models.KeyedVectors(VECTORS.shape[1])
    keyed.add_vectors(WORDS, VECTORS)
    save = keyed.save_word2vec_format
    save(folder / "word2vec.txt")
    save(folder / "glove.txt", write_header=False)
    save(folder / "word2vec.bin", binary=True)
    np.save(folder / "rows.npy", VECTORS)
    np.save(folder / "columns.npy", np.asfortranarray(VECTORS))
    np.save(folder / "double.npy", VECTORS.astype("float64"))
    np.savez(folder / "words.npz", words=np.array(WORDS), table=VECTORS)
    lines = "\n".join(WORDS) + "\n"
    (folder / "words.txt").write_text(lines, encoding="utf-8", newline="")
    return folder


TEXT = ("word2vec.txt", "glove.txt", "word2vec.bin")
TABLES = ("rows.npy", "columns.npy", "double.npy")


@pytest.mark.parametrize("name", [*TEXT, *TABLES, "words.npz"])
@pytest.mark.parametrize("limit", [None, 4, 99])
def test_files_of_others(files, name, limit):
    words = files / "words.txt" if name in TABLES else None
    read = read_vectors(files / name, words=words, limit=limit)
    assert read.words == WORDS[:limit]
    assert read.vectors.dtype == "float32"
    np.testing.assert_array_equal(read.vectors, VECTORS[:limit])


@pytest.mark.parametrize("name", [*TEXT, "rows.npy"])
def test_compressed(files, name, tmp_path):
    data = (files / name).read_bytes()
    words = WORDS if name == "rows.npy" else None
    for compress in (gzip.compress, lzma.compress, bz2.compress, zipped):
        path = tmp_path / "file"  # By its contents, not by its name.
        path.write_bytes(compress(data))
        read = read_vectors(path, words=words)
        assert read.words == WORDS
        np.testing.assert_array_equal(read.vectors, VECTORS)


def zipped(data, *names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("folder/vectors.txt",):
            archive.writestr(name, data)
    return file.getvalue()
