"""Examples of classifying texts run, each once in its quick mode."""

import csv
import functools
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from examples import ant_text_classification
from examples import compress_text_classifier
from examples import text_to_phone
from examples import word_associations

pytestmark = pytest.mark.slow


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


def test_anchors(tmp_path):
    rows = ant_text_classification.main(["--quick", f"--output={tmp_path}"])
    table, anchors = rows
    assert anchors["parameters"] == anchors["nonzeros"] + 8 * 8
    assert anchors["parameters"] < table["parameters"]
    for row in rows:
        # LiteRT repeats Keras.
        assert row["litert_accuracy"] == row["keras_accuracy"] > 0.8
    assert json.loads((tmp_path / "results.json").read_text()) == rows


def test_demo_on_a_file(tmp_path, monkeypatch):
    demo = compress_text_classifier
    # As small as the texts: learning codes takes most of the time.
    monkeypatch.setattr(demo, "CODE_SHAPES", ((8, 16),))
    ratios = functools.partial(demo.latency_ratios, seconds=0)
    monkeypatch.setattr(demo, "latency_ratios", ratios)
    output, saved = tmp_path / "demo", tmp_path / "saved"
    texts = write_texts(tmp_path / "texts.csv")
    flags = f"--data={texts} --output={output} --save={saved} --seeds=2 "
    flags += "--length=16 --embedding-dim=64 --epochs=2 --fine-tune-epochs=1 "
    rows = demo.main(f"{flags} --model=mean".split())
    assert json.loads((output / "results.json").read_text()) == rows
    names = ["baseline", "baseline fine-tuned", "codes 8x16"]
    assert [row["name"] for row in rows] == [
        f"{name} {kind}" for name in names for kind in ("float32", "int8")
    ]
    for row in rows:
        # LiteRT repeats Keras: exactly, or but for int8 rounding.
        by_seed = row["keras_accuracy_by_seed"]
        assert len(by_seed) == 2
        apart = np.subtract(by_seed, row["litert_accuracy_by_seed"])
        assert np.abs(apart).max() <= (0.1 if "int8" in row["name"] else 0.0)
    sizes = [row["file_bytes"] for row in rows]
    assert sizes[0] == sizes[2] > sizes[4] and sizes[3] > sizes[5]
    for name in ("accuracy_against_size.png", "code_balance.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    figures = json.loads((saved / "figures.json").read_text())
    accuracies = rows[-1]["keras_accuracy_by_seed"]
    assert figures["keras_accuracy"] == accuracies[0]


def test_text_to_phone(tmp_path, capsys):
    pytest.importorskip("tensorflow_text")
    pytest.importorskip("mediapipe")
    output, saved = tmp_path / "output", tmp_path / "saved"
    flags = ["--quick", "--output", str(output), "--save", str(saved)]
    figures = text_to_phone.main([*flags, "--text", "word1 word5 word9"])
    for row in figures["by_seed"][0].values():
        assert row["file_accuracy"] > 0.9
        assert abs(row["file_accuracy"] - row["keras_accuracy"]) < 0.02
    path = output / "model.tflite"
    assert path.stat().st_size == figures["file_bytes"]
    assert figures["file_bytes"] < figures["table"]["file_bytes"]
    printed = capsys.readouterr().out
    assert printed.split("word1 word5 word9\n")[1].split()[1] == "class1"
    text_to_phone.main(["--load", str(path), "--text", "word2 word6"])
    assert "class2" in capsys.readouterr().out.split("\n")[1]
    model = kc.from_preset(saved)
    sample = json.loads((saved / "sample.json").read_text())
    found = np.argmax(model(tf.constant(sample["texts"])), axis=-1)
    assert np.mean(found == sample["answers"]) > 0.95


def test_tune(tmp_path, capsys):
    pytest.importorskip("keras_tuner")
    from examples import tune_text_classifier

    result = tune_text_classifier.main(["--quick", f"--output={tmp_path}/tune"])
    assert result["test_accuracy"] > 0.9
    assert result["file_bytes"] < result["original_bytes"]
    said = capsys.readouterr().out
    methods = re.findall(r"^ +[\d,]+  +[01]\.\d{4}  (.+)$", said, re.M)
    assert methods[0] == result["stored as"]
    assert len(methods) == tune_text_classifier.QUICK["trials"]


def test_words_are_composed_from_words_of_their_class(tmp_path):
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


@pytest.mark.parametrize("way", ["transformer", "static"])
def test_encoders_are_shrunk_without_labels(way, tmp_path):
    hub = pytest.importorskip("keras_hub")
    pytest.importorskip("tensorflow_text")
    pytest.importorskip("mediapipe")
    from examples import sentence_encoder_to_phone

    rng = np.random.default_rng(0)
    letters = rng.choice(list("abcdefghij"), (1500, 6))
    words = sorted(set(map("".join, letters)))
    keras.utils.set_random_seed(0)
    backbone = hub.models.BertBackbone(
        vocabulary_size=len(words) + 4,
        num_layers=1,
        num_heads=2,
        hidden_dim=64,
        intermediate_dim=64,
        max_sequence_length=16,
    )
    table = backbone.token_embedding.embeddings
    # Else positions are as much of a text's vector as its words.
    table.assign(table * 20)
    backbone.save_to_preset(str(tmp_path / "encoder"))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    (tmp_path / "encoder" / "vocab.txt").write_text("\n".join(pieces))
    texts = [" ".join(rng.choice(words, 5)) for _ in range(1400)]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts))
    flags = f"{tmp_path / 'encoder'} --texts {path} --output {tmp_path}"
    flags += f" --way {way} --num-codebooks 4 --length 12 --pieces 1000"
    flags += " --width 32 --learning-rate 0.01"
    before, after = sentence_encoder_to_phone.main(flags.split())[-2:]
    # A static encoder has nothing to learn from random words.
    assert after["cosine"] > before["cosine"] - 0.01 * (way == "static")
    path = tmp_path / f"{way}_codes.tflite"
    assert after["file"] == path.stat().st_size
