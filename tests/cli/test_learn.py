"""`keras-compembed learn`."""

import os

import numpy as np
import pytest
from vector_files import fasttext_model

from keras_compembed import cli
from keras_compembed.vectors import CompressedVectors

ROWS, WIDTH = 200, 12


@pytest.fixture
def glove(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10, WIDTH))[rng.integers(10, size=ROWS)]
    rows += 0.3 * rng.normal(size=rows.shape)
    with open("glove.txt", "w") as file:
        for place, row in enumerate(rows):
            numbers = " ".join(f"{number:.5f}" for number in row)
            file.write(f"word{place} {numbers}\n")
    return rows


def learn(arguments):
    assert cli.main(["learn", *arguments.split()]) == 0


def fails(capsys, arguments):
    capsys.readouterr()
    assert cli.main(["learn", *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_within_a_number_of_bytes(glove, capsys):
    command = "glove.txt --max-bytes 4kB -o small.npz --seed 0"
    learn(command)
    size = os.path.getsize("small.npz")
    assert size <= 4000
    small = CompressedVectors.load("small.npz")
    assert small.words[-1] == f"word{ROWS - 1}"
    lost = np.square(small.table() - glove).sum()
    assert lost < 0.5 * np.square(glove - glove.mean(0)).sum()
    said = capsys.readouterr().out
    assert f"bytes      {size:,}: words" in said
    assert "than glove.txt" in said and "mean cosine 0." in said
    assert "small.npz" in fails(capsys, command)
    learn("glove.txt -o small.npz -m 3 -k 8 --limit 50 --overwrite")
    small = CompressedVectors.load("small.npz")
    assert len(small) == 50 and small.method == "codes 3x8"


def test_words_by_their_letters(tmp_path, monkeypatch, capsys):
    fasttext = pytest.importorskip("gensim.models.fasttext")
    monkeypatch.chdir(tmp_path)
    fasttext.save_facebook_model(fasttext_model(), "model.bin")
    learn("model.bin --subwords 9 -o a.npz")
    assert "unknown    9 groups of letters; mean" in capsys.readouterr().out
    small = CompressedVectors.load("a.npz")
    assert len(small.subwords()) == 9
    learn("model.bin --subwords -o b.npz -m 3 -k 4 --max-bytes 4k")
    assert len(CompressedVectors.load("b.npz").subwords()) == len(small)


def test_what_is_refused(glove, capsys):
    for arguments, says in (
        ("gone.txt -o small.npz", "No such file: 'gone.txt'"),
        ("glove.txt -o small.txt", "'.npz'"),
        ("glove.txt -o gone/small.npz", "no folder"),
        ("glove.txt -o small.npz --max-bytes 2X", "not a number of bytes"),
        ("glove.txt -o small.npz -k 1", "`codebook_size`"),
        ("glove.txt -o small.npz --words gone.txt", "gone.txt"),
        ("glove.txt -o small.npz --format text", "invalid choice"),
        ("glove.txt -o small.npz --subwords 0", "--subwords"),
        ("glove.txt -o small.npz --encoding x", "one that Python"),
        ("glove.txt -o small.npz --subwords", "--subwords must not be given"),
        ("glove.txt -o small.npz --max-bytes 90", "--max-bytes must be at"),
        ("glove.txt -o small.npz --max-bytes 900 -m 9 -k 32", "codes 9x32"),
    ):
        assert says in fails(capsys, arguments)
    with open("glove.txt", "a") as file:
        file.write("word 1 2 3\n")
    assert f"line {ROWS + 1}" in fails(capsys, "glove.txt -o small.npz")
    assert os.listdir() == ["glove.txt"]


def test_words_of_another_encoding(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open("latin.txt", "wb") as file:
        file.write(b"\xe9t\xe9 1 2\na 3 4\nb 5 6\nc 8 7\n")
    command = "latin.txt -o small.npz -m 1 -k 2"
    fails(capsys, command)
    learn(f"{command} --encoding latin-1 --format glove")
    assert CompressedVectors.load("small.npz").words[0] == "été"
