import json
import lzma
import math

import keras
import numpy as np
import pytest

import keras_compembed as kc
from examples import word_language_model


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["anchors", "codes", "table"])
def test_quick(embedding, tmp_path, capsys):
    folder = tmp_path / "words"
    arguments = ["--quick", "--embedding", embedding, "--output", str(folder)]
    results = word_language_model.main(arguments)
    # Of 10 words in a line 8 are certain; 62 words in all.
    best = math.exp(math.log(60) / 10)
    assert best < results["perplexity"] < (20 if embedding == "codes" else 5)
    words = (folder / "vocabulary.txt").read_text().split("\n")
    assert len(words) == 62
    assert results["table_bytes"] == 2 * 4 * 62 * 24
    if embedding == "table":
        assert results["word_bytes"] == results["table_bytes"]
    else:
        assert results["word_bytes"] < results["table_bytes"] / 2
        assert results["next_words"]["w10 w11 w12"][0] in ("w13", "w14")
    assert json.loads((folder / "results.json").read_text()) == results
    assert "Perplexity on the test part" in capsys.readouterr().out

    model = keras.saving.load_model(folder / "words.keras")
    row = [words.index(word) for word in ("w10", "w11", "w12")]
    answer = kc.top_k_model(model, k=5).predict(np.array([row]), verbose=0)
    found = [words[k] for k in answer["ids"][0, -1]]
    assert found == results["next_words"]["w10 w11 w12"]


def test_text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Don't go,\nNo!\n\n" * 20)
    train, valid, test = word_language_model.read_words(path)
    line = ["don't", "go", ",", "no", "!", "<eos>"]
    # No paragraph follows the last one.
    assert train + valid + test == (line * 20)[:-1]
    assert (len(train), len(valid), len(test)) == (107, 6, 6)


def test_folder(tmp_path):
    for part in ("train", "valid"):
        with lzma.open(tmp_path / f"ptb.{part}.txt.xz", "wt") as file:
            file.write(f" u.s. {part} n \n no \n")
    (tmp_path / "ptb.test.txt").write_text(" the test \n")
    parts = word_language_model.read_words(tmp_path)
    assert parts[0] == ["u.s.", "train", "n", "<eos>", "no", "<eos>"]
    assert parts[2] == ["the", "test", "<eos>"]
    (tmp_path / "ptb.test.txt").unlink()
    with pytest.raises(SystemExit, match="no ptb.test.txt"):
        word_language_model.read_words(tmp_path)


def test_numbers():
    parts = ["a b b c c c".split(), "a d".split(), []]
    vocabulary, counts, ids = word_language_model.number_words(parts, 2)
    assert vocabulary == ("c", "b", "<unk>")
    assert counts.tolist() == [3, 2, 1]
    assert [part.tolist() for part in ids] == [[2, 1, 1, 0, 0, 0], [2, 2], []]
    inputs, targets = word_language_model.segments(np.arange(8), 3)
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert targets.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_data_must_be_named(capsys, monkeypatch):
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    with pytest.raises(SystemExit):
        word_language_model.main([])
    assert "--data or COMPEMBED_DATA" in capsys.readouterr().err
