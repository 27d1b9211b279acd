import io
import json

import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from examples import text_to_phone
from keras_compembed.presets.card_text import format_card

pytest.importorskip("tensorflow_text")


@pytest.mark.slow
def test_quick(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mediapipe")
    output, saved = tmp_path / "output", tmp_path / "saved"
    flags = ["--quick", "--output", str(output), "--save", str(saved)]
    figures = text_to_phone.main([*flags, "--text", "word1 word5 word9"])
    assert json.loads((output / "results.json").read_text()) == figures
    assert figures["stored_as"] in ("2-bit rows", "codes")
    for row in figures["by_seed"][0].values():
        assert row["file_accuracy"] > 0.9
        assert abs(row["file_accuracy"] - row["keras_accuracy"]) < 0.02
    path = output / "model.tflite"
    assert path.stat().st_size == figures["file_bytes"]
    assert figures["tokenizer_bytes"] < figures["file_bytes"]
    assert figures["file_bytes"] < figures["table"]["file_bytes"]
    printed = capsys.readouterr().out
    assert printed.split("word1 word5 word9\n")[1].split()[1] == "class1"

    monkeypatch.setattr("sys.stdin", io.StringIO("word2 word6\n\nword3\n"))
    assert text_to_phone.main(["--load", str(path), "--text", "-"]) is None
    printed = capsys.readouterr().out.split("\n")
    assert printed[0] == "word2 word6" and "class2" in printed[1]
    assert "word3" not in printed

    model = kc.from_preset(saved)
    assert (saved / "README.md").read_text() == format_card(saved, model)
    sample = json.loads((saved / "sample.json").read_text())
    found = np.argmax(model(tf.constant(sample["texts"])), axis=-1)
    assert np.mean(found == sample["answers"]) > 0.95


def test_columns_of_a_file(tmp_path, capsys):
    path = tmp_path / "mails.csv"
    rows = [f"{place},mail {place},folder{place % 2}\n" for place in range(40)]
    rows += ["40,,folder1\n", "41, ,folder0\n"]
    # As Excel writes it.
    path.write_text("\ufeffsubject,text,folder\n" + "".join(rows), "utf-8")
    flags = ["--csv", str(path), "--text-column", "subject"]
    flags += ["--label-column", "folder"]
    dataset = text_to_phone.read_texts(text_to_phone.parse_arguments(flags))
    assert dataset.classes == ["folder0", "folder1"]
    parts = (dataset.train, dataset.validation, dataset.test)
    texts = [text for part in parts for text in part[0]]
    assert sorted(map(int, texts)) == list(range(42))
    flags = ["--csv", str(path), "--label-column", "folder"]
    dataset = text_to_phone.read_texts(text_to_phone.parse_arguments(flags))
    assert len(dataset.train[0]) + len(dataset.test[0]) < 40
    assert "2 rows lack text or label" in capsys.readouterr().out
    with pytest.raises(ValueError, match="'label' and 'text'. Received"):
        text_to_phone.read_texts(
            text_to_phone.parse_arguments(["--csv", str(path)])
        )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds", "0"], "--seeds must be positive"),
        (["--csv", "a.csv", "--save", "b"], "a card of the docstrings"),
    ],
)
def test_bad_flags(flags, message, capsys):
    with pytest.raises(SystemExit):
        text_to_phone.parse_arguments(flags)
    assert message in capsys.readouterr().err
