"""The committed model of the demo loads, and is as good as its card says."""

import json
import pathlib
import re

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.export.interpreter import LiteRTModel

FOLDER = pathlib.Path(__file__).parents[1] / "saved_models"
MODEL = FOLDER / "docstring_classifier"


@pytest.fixture(scope="module")
def sample():
    content = json.loads((MODEL / "sample.json").read_text("utf-8"))
    # The first two are the padding and the unknown word, which a given
    # vocabulary leaves out.
    words = (MODEL / "vocabulary.txt").read_text("utf-8").split("\n")[2:-1]
    vectorizer = keras.layers.TextVectorization(
        vocabulary=words, output_sequence_length=128
    )
    ids = vectorizer(np.array(content["texts"], dtype=object))
    content["ids"] = keras.ops.convert_to_numpy(ids).astype("int32")
    return content


def accuracy(probabilities, labels):
    return np.mean(np.argmax(probabilities, axis=-1) == labels)


def test_keras_model(sample):
    model = keras.saving.load_model(MODEL / "model.keras")
    assert isinstance(model.get_layer("words"), kc.CodeEmbedding)
    got = accuracy(model.predict(sample["ids"], verbose=0), sample["labels"])
    # Another machine may round one text of 100 to another class.
    assert got == pytest.approx(sample["keras_accuracy"], abs=0.0101)


def test_litert_file(sample):
    model = LiteRTModel(MODEL / "model.tflite")
    got = accuracy(model.predict(sample["ids"]), sample["labels"])
    assert got == pytest.approx(sample["litert_accuracy"], abs=0.0201)
    assert (MODEL / "model.tflite").stat().st_size == (
        json.loads((MODEL / "figures.json").read_text())["file_bytes"]
    )


def test_size_and_card():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    classes = (MODEL / "classes.txt").read_text("utf-8").splitlines()
    model = keras.saving.load_model(MODEL / "model.keras")
    assert model.output_shape == (None, len(classes))
    card = (MODEL / "README.md").read_text("utf-8")
    figures = json.loads((MODEL / "figures.json").read_text())
    assert f"{100 * figures['litert_accuracy']:.1f} %" in card
    assert f"{figures['file_bytes']:,}" in card


def test_figures_lie_within_the_row_of_readme():
    figures = json.loads((MODEL / "figures.json").read_text())
    readme = (FOLDER.parent / "README.md").read_text("utf-8")
    (row,) = re.findall(rf"^\| {figures['name']} \|.*", readme, re.M)
    spreads = re.findall(r"([\d.]+) ± ([\d.]+) %", row)
    names = ("keras_accuracy", "litert_accuracy")
    for name, spread in zip(names, spreads, strict=True):
        mean, deviation = map(float, spread)
        # Both are rounded to a tenth.
        assert abs(100 * figures[name] - mean) <= 2 * deviation + 0.1
    assert figures["texts"] in readme
