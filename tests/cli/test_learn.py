"""Commands on word vectors."""

import json
import os

import numpy as np
import pytest
from vector_files import write_fasttext

from keras_compembed.vectors import CompressedVectors
from keras_compembed_command import main

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
    assert main(["learn", *arguments.split()]) == 0


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
    assert (
        "compared with the float32 table" in said and "mean cosine 0." in said
    )
    # Later, they are looked at again, also beside the original.
    assert main("inspect small.npz --json small.json".split()) == 0
    assert f"200 x 12, as {small.method}" in capsys.readouterr().out
    with open("small.json") as file:
        assert json.load(file)["bytes"].startswith(f"{size:,}")
    assert main("report small.npz glove.txt".split()) == 0
    assert capsys.readouterr().out.strip() in said
    learn("glove.txt -o small.npz -m 3 -k 8 --limit 50 --overwrite")
    small = CompressedVectors.load("small.npz")
    assert len(small) == 50 and small.method == "codes 3x8"
    with open("glove.txt") as file, open("other.txt", "w") as other:
        other.writelines(file.readlines()[::-1])
    for command, says in (
        ("small.npz other.txt", "must begin with the words"),
        ("small.npz --html page.html", "--html must be given with a model"),
    ):
        assert main(["report", *command.split()]) == 2
        assert says in capsys.readouterr().err


def test_words_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("latin.txt", "wb") as file:
        file.write(b"\xe9t\xe9 1 2\na 3 4\nb 5 6\nc 8 7\n")
    learn("latin.txt -o a.npz -m 1 -k 2 --encoding latin-1 --format glove")
    assert CompressedVectors.load("a.npz").words[0] == "été"
    table = np.random.default_rng(0).normal(size=(22, 4))
    write_fasttext(tmp_path / "model.bin", [b"the", b"cat"], table)
    learn("model.bin --subwords 9 -o b.npz")
    assert len(CompressedVectors.load("b.npz").subwords()) == 9


def test_what_is_refused(glove, capsys):
    for arguments, says in (
        ("gone.txt -o small.npz", "gone.txt"),
        ("glove.txt -o small.txt", "'.npz'"),
        ("glove.txt -o small.npz --max-bytes 2X", "must be a size in bytes"),
        ("glove.txt -o small.npz --max-bytes 90", "`max_bytes` must be at"),
    ):
        assert main(["learn", *arguments.split()]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
    assert os.listdir() == ["glove.txt"]
