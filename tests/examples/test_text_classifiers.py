"""Examples of classifying texts run, each once in its quick mode."""

import csv
import functools
import io
import json
import re

import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from examples import ant_text_classification
from examples import compress_text_classifier
from examples import text_to_phone
from examples import word_associations


def write_texts(path, rows=200, words=300, length=30, common=0.02):
    """Texts whose class shows in the words they are made of."""
    rng = np.random.default_rng(0)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "text"])
        for place in range(rows):
            kind = ("fruit", "metal", "river")[place % 3]
            # Low numbers more often.
            drawn = np.minimum(rng.geometric(common, size=length), words) - 1
            ends = (chr(97 + x // 26) + chr(97 + x % 26) for x in drawn)
            text = " ".join(kind + end for end in ends)
            writer.writerow([kind, f"the {text} of"])
    return path


@pytest.mark.slow
def test_anchors(tmp_path, capsys):
    rows = ant_text_classification.main(
        ["--quick", "--output", str(tmp_path / "ant")]
    )
    table, anchors = rows
    assert (table["name"], anchors["name"]) == ("table", "anchors")
    # Of width 8, and 8 anchors.
    assert table["parameters"] % 8 == 0 and table["nonzeros"] is None
    assert anchors["parameters"] == anchors["nonzeros"] + 8 * 8
    assert anchors["parameters"] < table["parameters"]
    for row in rows:
        assert row["keras_accuracy"] > 0.8
        # LiteRT repeats Keras.
        assert row["litert_accuracy"] == row["keras_accuracy"]
    assert json.loads((tmp_path / "ant/results.json").read_text()) == rows
    assert "non-zeros" in capsys.readouterr().out


@pytest.mark.slow
def test_demo_on_a_file(tmp_path, capsys, monkeypatch):
    demo = compress_text_classifier
    # As small as the texts: learning codes takes most of the time.
    monkeypatch.setattr(demo, "CODE_SHAPES", ((8, 16),))
    monkeypatch.setattr(
        demo,
        "latency_ratios",
        functools.partial(demo.latency_ratios, seconds=0),
    )
    output, saved = tmp_path / "demo", tmp_path / "saved"
    arguments = {
        "data": write_texts(tmp_path / "texts.csv"),
        "output": output,
        "save": saved,
        "seeds": 2,
        "length": 16,
        "embedding-dim": 64,
        "epochs": 2,
        "fine-tune-epochs": 1,
        "model": "mean",
    }
    rows = demo.main([f"--{name}={value}" for name, value in arguments.items()])
    assert json.loads((output / "results.json").read_text()) == rows
    names = ["baseline", "baseline fine-tuned", "codes 8x16"]
    assert [row["name"] for row in rows] == [
        f"{name} {kind}" for name in names for kind in ("float32", "int8")
    ]
    for row in rows:
        # LiteRT repeats Keras: exactly, or but for int8 rounding.
        by_seed = row["keras_accuracy_by_seed"]
        assert len(by_seed) == 2
        assert row["keras_accuracy"] == pytest.approx(np.mean(by_seed))
        in_file = row["litert_accuracy_by_seed"]
        assert row["accuracy_range"] == [min(in_file), max(in_file)]
        apart = np.abs(np.subtract(by_seed, in_file)).max()
        assert apart <= (0.1 if "int8" in row["name"] else 0.0)
        assert row["latency_ratio"] > 0
        # The layer behind codes became part of codebooks.
        is_smaller = row["file_bytes"] < row["embedding_bytes"]
        assert is_smaller == row["name"].startswith("codes")
    sizes = [row["file_bytes"] for row in rows]
    assert sizes[0] == sizes[2] > sizes[4] and sizes[3] > sizes[5]
    for name in ("accuracy_against_size.png", "code_balance.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "Mean and standard deviation of 2 seeds" in said
    assert (output / "seed_1/codes_8x16_int8.tflite").exists()

    sample = json.loads((saved / "sample.json").read_text())
    # A share of 15 % of the texts.
    assert len(sample["texts"]) == len(sample["labels"]) == 200 * 15 // 100
    figures = json.loads((saved / "figures.json").read_text())
    accuracies = rows[-1]["keras_accuracy_by_seed"]
    assert figures["keras_accuracy"] == accuracies[0]


@pytest.mark.slow
def test_text_to_phone(tmp_path, capsys, monkeypatch):
    pytest.importorskip("tensorflow_text")
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
    sample = json.loads((saved / "sample.json").read_text())
    found = np.argmax(model(tf.constant(sample["texts"])), axis=-1)
    assert np.mean(found == sample["answers"]) > 0.95


def test_texts_in_columns_of_a_file(tmp_path, capsys):
    pytest.importorskip("tensorflow_text")
    path = tmp_path / "mails.csv"
    rows = [f"{place},mail {place},folder{place % 2}\n" for place in range(40)]
    rows += ["40,,folder1\n", "41, ,folder0\n"]
    # As Excel writes it.
    path.write_text("\ufeffsubject,text,folder\n" + "".join(rows), "utf-8")

    def read(*flags):
        args = text_to_phone.parse_arguments(["--csv", str(path), *flags])
        return text_to_phone.read_texts(args)

    dataset = read("--text-column", "subject", "--label-column", "folder")
    assert dataset.classes == ["folder0", "folder1"]
    parts = (dataset.train, dataset.validation, dataset.test)
    texts = [text for part in parts for text in part[0]]
    assert sorted(map(int, texts)) == list(range(42))
    dataset = read("--label-column", "folder")
    assert len(dataset.train[0]) + len(dataset.test[0]) < 40
    assert "2 rows lack text or label" in capsys.readouterr().out
    with pytest.raises(ValueError, match="'label' and 'text'"):
        read()


@pytest.mark.slow
def test_tune(tmp_path, capsys):
    pytest.importorskip("keras_tuner")
    from examples import tune_text_classifier

    arguments = ["--quick", "--output", str(tmp_path / "tune")]
    result = tune_text_classifier.main(arguments)
    assert result["test_accuracy"] > 0.9
    assert result["file_bytes"] < result["original_bytes"]
    said = capsys.readouterr().out
    methods = re.findall(r"^ +[\d,]+  +[01]\.\d{4}  (.+)$", said, re.M)
    assert methods[0] == result["stored as"]
    assert len(methods) == tune_text_classifier.QUICK["trials"]


@pytest.mark.slow
def test_words_are_composed_from_words_of_their_class(tmp_path, capsys):
    path = write_texts(tmp_path / "texts.csv", 600, 40, 12, common=0.1)
    flags = "--vocabulary-size=200 --length=20 --embedding-dim=8 "
    flags += "--num-anchors=9 --l1=3e-3 --epochs=12 --batch-size=32 "
    flags += f"--common=0.5 --words=fruitaa,nowhere --data={path}"
    pairs = word_associations.main(flags.split())
    alike = [word[:5] == anchor[:5] for _, word, anchor in pairs[:20]]
    # A third by chance.
    assert np.mean(alike) > 0.8
    values = [value for value, _, _ in pairs]
    assert values == sorted(values, reverse=True) and values[-1] > 0
    anchors = {anchor for _, _, anchor in pairs}
    assert not anchors & ({"the", "of"} | {word for _, word, _ in pairs})
    said = capsys.readouterr().out
    accuracy = re.search(r"test texts: ([\d.]+), with", said)
    assert float(accuracy.group(1)) > 0.8
