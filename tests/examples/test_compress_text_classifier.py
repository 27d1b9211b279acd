import csv
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from examples import compress_text_classifier
from keras_compembed.presets.card_text import format_card


def write_texts(path, rows=300, words=900):
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


def run(folder, **arguments):
    arguments = {
        "data": folder / "texts.csv",
        "length": 16,
        "embedding-dim": 64,
        "epochs": 2,
        "fine-tune-epochs": 1,
        **arguments,
    }
    rows = compress_text_classifier.main(
        [f"--{name}={value}" for name, value in arguments.items()]
    )
    output = arguments["output"]
    assert json.loads((output / "results.json").read_text()) == rows
    return rows


@pytest.mark.slow
def test_demo_on_a_file(tmp_path, capsys, monkeypatch):
    # As small as the texts: learning codes takes most of the time.
    monkeypatch.setattr(
        compress_text_classifier, "CODE_SHAPES", ((16, 16), (8, 16))
    )
    write_texts(tmp_path / "texts.csv")
    output, saved = tmp_path / "demo", tmp_path / "saved"
    rows = run(tmp_path, output=output, save=saved, seeds=2)
    names = [row["name"] for row in rows]
    assert [name.startswith("baseline") for name in names] == [True] * 4 + [
        False
    ] * 4
    for row in rows:
        assert set(row) == {
            "name",
            "embedding_bytes",
            "file_bytes",
            "keras_accuracy",
            "litert_accuracy",
            "keras_accuracy_by_seed",
            "litert_accuracy_by_seed",
            "accuracy_range",
            "latency_ratio",
        }
        # LiteRT repeats Keras: exactly, or but for int8 rounding.
        by_seed = row["keras_accuracy_by_seed"]
        assert len(by_seed) == 2
        assert row["keras_accuracy"] == pytest.approx(np.mean(by_seed))
        apart = np.subtract(by_seed, row["litert_accuracy_by_seed"])
        assert np.abs(apart).max() <= (0.05 if "int8" in row["name"] else 0.0)
        assert row["embedding_bytes"] < row["file_bytes"]
        assert row["latency_ratio"] > 0
    sizes = [row["file_bytes"] for row in rows]
    assert sizes[0] == sizes[2] > sizes[4] > sizes[6]
    for name in ("accuracy_against_size.png", "code_balance.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "codes 8x16 float32" in said
    assert "Mean and standard deviation of 2 seeds" in said
    for name in ("baseline", "baseline_fine-tuned", "codes_8x16"):
        assert (output / f"{name}_int8.tflite").exists()
        assert (output / f"seed_1/{name}_int8.tflite").exists()

    model = keras.saving.load_model(saved / "model.keras")
    assert not model.compiled
    assert len((saved / "vocabulary.txt").read_text().splitlines()) == (
        model.get_layer("words").input_dim
    )
    sample = json.loads((saved / "sample.json").read_text())
    assert len((saved / "labels.txt").read_text().splitlines()) == 3
    assert len(sample["texts"]) == len(sample["labels"]) == rows_of_test()
    figures = json.loads((saved / "figures.json").read_text())
    assert figures["seed"] == 0
    accuracies = rows[-1]["keras_accuracy_by_seed"]
    assert figures["keras_accuracy"] == accuracies[0]
    assert figures["of_seeds"]["mean"] == pytest.approx(np.mean(accuracies))
    # The fine-tuned table as float32.
    table = rows[2]["keras_accuracy_by_seed"]
    assert figures["table"] == {
        "file_bytes": sizes[2],
        "mean": pytest.approx(np.mean(table)),
        "deviation": pytest.approx(np.std(table, ddof=1)),
    }
    card = (saved / "README.md").read_text()
    assert card == format_card(saved, model)
    assert f"{accuracies[0]:.1%} are right in Keras" in card
    assert "in 8 x 16 codes" in card
    assert f"--save={saved}" in card


def rows_of_test():
    return 300 * 15 // 100


def test_bad_flags(capsys):
    with pytest.raises(SystemExit):
        compress_text_classifier.main(["--seeds=0"])
    assert "--seeds must be positive. Received: 0" in capsys.readouterr().err


def weights_by_cores(folder, cores):
    """Digest of a classifier's weights, trained on so many cores."""
    program = """
import hashlib, os, sys
os.sched_setaffinity(0, [int(core) for core in sys.argv[1].split(",")])
import keras
from benchmarks.data import labelled_texts
from examples import compress_text_classifier as demo
args = demo.parse_arguments(["--length=64"])
dataset = labelled_texts.load(sys.argv[2])
words, dataset = dataset.as_ids(args.vocabulary_size, args.length)
keras.utils.set_random_seed(0)
model = demo.build_model(args, len(words), len(dataset.classes))
demo.train(model, dataset, args, 1, 1e-3)
weights = b"".join(weight.tobytes() for weight in model.get_weights())
print("digest", hashlib.sha256(weights).hexdigest())
"""
    environment = dict(os.environ)
    # What the import of the demo set in this process.
    environment.pop("TF_NUM_INTRAOP_THREADS", None)
    names = ",".join(str(core) for core in cores)
    done = subprocess.run(
        [sys.executable, "-c", program, names, folder / "texts.csv"],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **environment,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "PYTHONHASHSEED": "random",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rsplit("digest ", 1)[1]


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here"
)
def test_figures_do_not_depend_on_the_number_of_cores(tmp_path):
    write_texts(tmp_path / "texts.csv")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    assert weights_by_cores(tmp_path, cores[:1]) == (
        weights_by_cores(tmp_path, cores)
    )
