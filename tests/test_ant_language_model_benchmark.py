"""The tied language-model benchmark runs in its quick mode."""

import importlib.util
import json
import lzma
import pathlib
import sys

import numpy as np
import pytest

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    spec = importlib.util.spec_from_file_location(
        "benchmark_ant_language_model", BENCHMARKS / "ant_language_model.py"
    )
    module = importlib.util.module_from_spec(spec)
    # Data classes look their own module up.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path):
    """Sentences in which each word follows from the one before."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "ptb"
    folder.mkdir()
    for part, lines in (("train", 60), ("valid", 20), ("test", 20)):
        text = ""
        for start in rng.integers(30, size=lines):
            words = (start + np.arange(8)) % 30
            text += "".join(f" w{word}" for word in words) + " \n"
        with lzma.open(folder / f"ptb.{part}.txt.xz", "wt") as file:
            file.write(text)
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
