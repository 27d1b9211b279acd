import csv
import json

import compress_text_classifier
import keras
import numpy as np


def write_texts(path, rows=300, words=2500):
    """Texts whose class shows in the words they are made of."""
    rng = np.random.default_rng(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "text"])
        for _ in range(rows):
            label = rng.integers(3)
            places = rng.integers(words // 3, size=40) * 3 + label
            text = " ".join(f"word{place}" for place in places)
            writer.writerow([f"class{label}", text])


def test_demo_on_a_file(tmp_path, capsys):
    write_texts(tmp_path / "texts.csv")
    output, saved = tmp_path / "demo", tmp_path / "saved"
    arguments = {
        "data": tmp_path / "texts.csv",
        "output": output,
        "save": saved,
        "length": 16,
        "embedding-dim": 64,
        "epochs": 2,
        "fine-tune-epochs": 1,
    }
    rows = compress_text_classifier.main(
        [f"--{name}={value}" for name, value in arguments.items()]
    )
    assert json.loads((output / "results.json").read_text()) == rows
    names = [row["name"] for row in rows]
    assert [name.startswith("baseline") for name in names] == [True] * 2 + [
        False
    ] * 4
    for row in rows:
        assert set(row) == {
            "name",
            "embedding_bytes",
            "file_bytes",
            "keras_accuracy",
            "litert_accuracy",
            "latency_ratio",
        }
        # LiteRT repeats Keras: exactly, or but for int8 rounding.
        apart = abs(row["keras_accuracy"] - row["litert_accuracy"])
        assert apart <= (0.05 if "int8" in row["name"] else 0.0)
        assert row["embedding_bytes"] < row["file_bytes"]
        assert row["latency_ratio"] > 0
    sizes = [row["file_bytes"] for row in rows]
    assert sizes[0] > sizes[2] > sizes[4]
    for name in ("accuracy_against_size.png", "code_balance.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "codes 32x16 float32" in said

    model = keras.saving.load_model(saved / "model.keras")
    assert not model.compiled
    assert len((saved / "vocabulary.txt").read_text().splitlines()) == (
        model.get_layer("words").input_dim
    )
    sample = json.loads((saved / "sample.json").read_text())
    assert len(sample["texts"]) == len(sample["labels"]) == rows_of_test()


def rows_of_test():
    return 300 * 15 // 100
