"""The presets in `saved_models` load, and are as good as their cards say."""

import json
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from benchmarks.data.word_tests import WordPairs
from examples import recommend_titles
from tools import write_cards

FOLDER = pathlib.Path(__file__).parents[1] / "saved_models"
NAMES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(scope="module")
def models():
    return {name: kc.from_preset(name) for name in NAMES}


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
            "Write the cards anew: python -m tools.write_cards"
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


@pytest.fixture(scope="module")
def docstrings():
    name = "docstring_classifier"
    content = read_json(FOLDER / name / "sample.json")
    # The first two are the padding and the unknown word, which a given
    # vocabulary leaves out.
    vectorizer = keras.layers.TextVectorization(
        vocabulary=read_lines(name, "vocabulary.txt")[2:],
        output_sequence_length=128,
    )
    ids = vectorizer(np.array(content["texts"], dtype=object))
    content["ids"] = keras.ops.convert_to_numpy(ids).astype("int32")
    return content


def test_docstring_classifier(docstrings, models):
    model = models["docstring_classifier"]
    assert isinstance(model.get_layer("words"), kc.CodeEmbedding)
    labels = read_lines("docstring_classifier", "labels.txt")
    assert model.output_shape == (None, len(labels))
    got = accuracy(
        model.predict(docstrings["ids"], verbose=0), docstrings["labels"]
    )
    # Another machine may round one text of 100 to another class.
    assert got == pytest.approx(docstrings["keras_accuracy"], abs=0.0101)


def test_file_of_docstring_classifier(docstrings):
    path = kc.from_preset("docstring_classifier", "model.tflite")
    model = kc.export.LiteRTModel(path)
    got = accuracy(model.predict(docstrings["ids"]), docstrings["labels"])
    assert got == pytest.approx(docstrings["litert_accuracy"], abs=0.0201)


def test_sizes_of_docstring_classifier_are_those_of_readme():
    figures = read_json(FOLDER / "docstring_classifier/figures.json")
    readme = (FOLDER.parent / "README.md").read_text("utf-8")
    for file_bytes, name in (
        (figures["file_bytes"], figures["name"]),
        (figures["table"]["file_bytes"], "baseline fine-tuned float32"),
    ):
        (row,) = re.findall(rf"^\| {name} \|.*", readme, re.M)
        assert f"{file_bytes / 2**20:.2f} MB" in row


def test_docstring_text_classifier(models):
    pytest.importorskip("mediapipe")
    folder = FOLDER / "docstring_text_classifier"
    labels = read_lines(folder.name, "labels.txt")
    sample = read_json(folder / "sample.json")
    with kc.export.MediaPipeModel(folder / "model.tflite") as phone:
        assert list(phone.labels.values()) == [tuple(labels)]
        answers = phone.predict(sample["texts"])
        (best,) = phone.predict(["Open a socket and listen for connections."])
    # Other processors add up in another order.
    assert np.mean(np.argmax(answers, -1) == sample["answers"]) > 0.98
    np.testing.assert_allclose(
        np.max(answers, -1), sample["probabilities"], atol=1e-3
    )
    assert labels[np.argmax(best)] == "socket"
    model = models[folder.name]
    assert not isinstance(model.get_layer("pieces"), keras.layers.Embedding)
    # The file has int8 numbers where the model has floats.
    in_keras = model.predict(tf.constant(sample["texts"]), verbose=0)
    np.testing.assert_allclose(answers, in_keras, atol=0.1)
    assert accuracy(answers, sample["labels"]) == pytest.approx(
        accuracy(in_keras, sample["labels"]), abs=0.0201
    )


def test_job_title_recommender(models):
    name = "job_title_recommender"
    titles = read_lines(name, "labels.txt")
    model = models[name]
    assert model.output_shape == (None, len(titles))
    assert isinstance(model.get_layer("items"), kc.CodeEmbedding)
    assert isinstance(model.get_layer("parts"), kc.CodeEmbedding)

    sample = read_json(FOLDER / name / "sample.json")
    args = recommend_titles.parse_arguments(["--data", "none"])
    ids = recommend_titles.job_titles.vectorize(sample["titles"], args)
    for row, expected in zip(ids, sample["ids"], strict=True):
        assert row[row > 0].tolist() == expected
    phone = kc.export.LiteRTModel(FOLDER / name / "model.tflite")
    answers = phone.predict(ids)
    assert answers["ids"].shape == (100, recommend_titles.TOP)
    # Other processors round other scores to be equal.
    assert np.mean(answers["ids"] == sample["answers"]) > 0.95
    # The file has int8 numbers where the model has floats.
    in_keras = kc.top_k_model(model, k=recommend_titles.TOP)(ids)
    np.testing.assert_allclose(answers["scores"], in_keras["scores"], atol=0.03)
    shared = [
        len(set(row) & set(other)) / recommend_titles.TOP
        for row, other in zip(
            answers["ids"], in_keras["ids"].numpy(), strict=True
        )
    ]
    assert np.mean(shared) > 0.9

    (chef,) = phone.predict(
        recommend_titles.job_titles.vectorize(["Head Chef"], args)
    )["ids"]
    assert titles[chef[0]] == "head chef"


# Of WordSim-353, Finkelstein et al. (2002).
PAIRS = """
tiger cat 7.35
book paper 7.46
king queen 8.58
journey voyage 9.29
noon string 0.54
money cash 9.15
stock egg 1.81
car automobile 8.94
drink ear 1.31
media radio 7.42
"""


def test_review_words(models, tmp_path):
    vectors = models["review_words"]
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
    near = [word for word, _ in vectors.most_similar("good", topn=8)]
    assert {"great", "decent", "nice", "bad"} <= set(near)
    (answer, _), *_ = vectors.most_similar(["king", "woman"], ["man"])
    assert answer == "queen"
    (tmp_path / "pairs.txt").write_text(PAIRS)
    score = WordPairs.read(tmp_path / "pairs.txt").evaluate(
        vectors.table(), vectors.words
    )
    assert score.num_used == score.num_all and score.score > 0.7
    figures = read_json(FOLDER / "review_words/figures.json")
    for test in figures["tests"].values():
        assert test["small"] > 0.93 * test["table"]
