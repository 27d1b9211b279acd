"""The presets in `saved_models` load, and are as good as their cards say."""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from examples import recommend_titles
from tools import write_cards

FOLDER = pathlib.Path(__file__).parents[1] / "saved_models"
NAMES = sorted(path.name for path in FOLDER.iterdir())


def read_json(path):
    return json.loads(path.read_text("utf-8"))


def read_lines(name, file):
    # Words may hold what Python takes for line ends.
    return (FOLDER / name / file).read_text("utf-8").split("\n")[:-1]


def accuracy(probabilities, labels):
    return np.mean(np.argmax(probabilities, axis=-1) == labels)


def test_cards_say_what_the_files_say():
    cards = dict(write_cards.cards())
    assert {path.parent.name for path in cards} == set(NAMES)
    for path, card in cards.items():
        assert path.read_text("utf-8") == card, (
            "Write the cards again: python -m tools.write_cards"
        )


@pytest.mark.parametrize("name", NAMES)
def test_files_are_those_of_the_preset(name):
    folder = FOLDER / name
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(files) == {
        *read_json(folder / "preset.json")["files"],
        "README.md",
    }
    assert sum(files.values()) < 2_000_000
    figures = read_json(folder / "figures.json")
    counted = files.get("model.tflite") or files["vectors.npz"]
    assert figures["file_bytes"] == counted
    # Older ones cannot read what newer ones write.
    versions = read_json(folder / "preset.json")["versions"]
    assert versions["Keras"].startswith("3.12.")


def test_docstring_classifier():
    name = "docstring_classifier"
    sample = read_json(FOLDER / name / "sample.json")
    # The first two are the padding and the unknown word, which a given
    # vocabulary leaves out.
    vectorizer = keras.layers.TextVectorization(
        vocabulary=read_lines(name, "vocabulary.txt")[2:],
        output_sequence_length=128,
    )
    ids = vectorizer(np.array(sample["texts"], dtype=object))
    ids = keras.ops.convert_to_numpy(ids).astype("int32")
    model = kc.from_preset(name)
    assert isinstance(model.get_layer("words"), kc.CodeEmbedding)
    got = accuracy(model.predict(ids, verbose=0), sample["labels"])
    # Another machine may round one text of 100 to another class.
    assert got == pytest.approx(sample["keras_accuracy"], abs=0.0101)
    phone = kc.export.LiteRTModel(kc.from_preset(name, "model.tflite"))
    got = accuracy(phone.predict(ids), sample["labels"])
    assert got == pytest.approx(sample["litert_accuracy"], abs=0.0201)


def test_docstring_text_classifier():
    pytest.importorskip("mediapipe")
    folder = FOLDER / "docstring_text_classifier"
    labels = read_lines(folder.name, "labels.txt")
    sample = read_json(folder / "sample.json")
    with kc.export.MediaPipeModel(folder / "model.tflite") as phone:
        assert list(phone.labels.values()) == [tuple(labels)]
        answers = phone.predict(sample["texts"])
    # Other processors add up in another order.
    assert np.mean(np.argmax(answers, -1) == sample["answers"]) > 0.98
    np.testing.assert_allclose(
        np.max(answers, -1), sample["probabilities"], atol=1e-3
    )
    # The file has int8 numbers where the model has floats.
    model = kc.from_preset(folder.name)
    in_keras = model.predict(tf.constant(sample["texts"]), verbose=0)
    np.testing.assert_allclose(answers, in_keras, atol=0.1)


def test_sentence_encoder():
    pytest.importorskip("mediapipe")
    folder = FOLDER / "sentence_encoder"
    sample = read_json(folder / "sample.json")
    with kc.export.MediaPipeModel(folder / "model.tflite") as phone:
        answers = phone.predict(sample["texts"])
    np.testing.assert_allclose(answers, sample["vectors"], atol=1e-3)
    model = kc.from_preset(folder.name)
    in_keras = model.predict(tf.constant(sample["texts"]), verbose=0)
    # Codewords are int8 in the file.
    assert np.sum(answers * in_keras, axis=-1).min() > 0.99


def test_job_title_recommender():
    name = "job_title_recommender"
    model = kc.from_preset(name)
    sample = read_json(FOLDER / name / "sample.json")
    args = recommend_titles.parse_arguments(["--data", "none"])
    ids = recommend_titles.job_titles.vectorize(sample["titles"], args)
    for row, expected in zip(ids, sample["ids"], strict=True):
        assert row[row > 0].tolist() == expected
    phone = kc.export.LiteRTModel(FOLDER / name / "model.tflite")
    answers = phone.predict(ids)
    # Other processors round other scores to be equal.
    assert np.mean(answers["ids"] == sample["answers"]) > 0.95
    # The file has int8 numbers where the model has floats.
    in_keras = kc.top_k_model(model, k=recommend_titles.TOP)(ids)
    np.testing.assert_allclose(answers["scores"], in_keras["scores"], atol=0.03)


def test_review_words():
    vectors = kc.from_preset("review_words")
    sample = read_json(FOLDER / "review_words/sample.json")
    assert (len(vectors), vectors.vector_size) == (24_000, 300)
    assert vectors.index_to_key[:3] == ["the", ".", ","]
    words = sample["words"]
    numbers = vectors[words][:, :5]
    np.testing.assert_allclose(numbers, sample["numbers"], atol=2e-5)
    found = [vectors.most_similar(word, topn=3) for word in words[:20]]
    same = [
        [near for near, _ in row] == nearest
        for row, nearest in zip(found, sample["nearest"], strict=False)
    ]
    # Other processors add up in another order.
    assert np.mean(same) >= 0.9
    (answer, _), *_ = vectors.most_similar(["king", "woman"], ["man"])
    assert answer == "queen"
