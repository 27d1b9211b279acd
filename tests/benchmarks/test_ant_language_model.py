"""The tied language-model benchmark runs in its quick mode."""

import json

import numpy as np
import pytest
from benchmark_files import load
from benchmark_files import write_sentences


@pytest.fixture
def benchmark():
    return load("ant_language_model")


@pytest.fixture
def data(tmp_path):
    """Sentences in which each word follows from the one before."""
    write_sentences(tmp_path)
    return tmp_path


def test_rows(benchmark, data, capsys):
    output = data / "results.json"
    arguments = [
        "--quick",
        *("--data", str(data)),
        *("--output", str(output)),
        *("--cache", str(data / "cache")),
    ]
    lines = benchmark.main(arguments)
    assert json.loads(output.read_text())["rows"] == lines
    table, anchors = lines
    # 31 words, of width 8.
    assert table["parameters"] == 31 * 8
    assert 6 * 8 < anchors["parameters"] <= 6 * 8 + 31 * 6
    for line in lines:
        assert 1 < line["test"] < 40
    # Nothing of it runs again.
    assert benchmark.main(arguments) == lines
    assert "| 6 anchors, l1 0.001 | 2 | " in capsys.readouterr().out


def test_sampled_loss_of_all_words_is_full(benchmark, data):
    text = benchmark.word_lstm.Text(data / "ptb")
    # What is not frequent is sampled whole.
    recipe = benchmark.word_lstm.Recipe(
        batch_size=4, steps=3, units=8, layers=1, frequent=10, sampled=100
    )
    row = benchmark.Row("anchors", num_anchors=6, l1=0.0)
    embedding = benchmark.make_embedding(row, len(text.vocabulary), recipe)
    model = benchmark.TiedLanguageModel(embedding, text.counts, recipe, 100)
    model.build((4, 3))
    rng = np.random.default_rng(0)
    features = rng.normal(size=(12, 8)).astype("float32")
    labels = np.arange(12, dtype="int64") * 2
    np.testing.assert_allclose(
        model._sampled_loss(features, labels),
        model._full_loss(features, labels),
        rtol=1e-5,
    )


def test_data_must_be_named(benchmark, monkeypatch):
    monkeypatch.setenv("COMPEMBED_DATA", "")
    with pytest.raises(SystemExit, match="--data"):
        benchmark.main(["--quick", "--data", ""])
