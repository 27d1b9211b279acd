"""The language-model benchmark runs in its quick mode, on generated text."""

import json

import numpy as np
import pytest
from benchmark_files import load
from benchmark_files import write_sentences


@pytest.fixture
def benchmark():
    return load("language_model")


@pytest.fixture
def data(tmp_path):
    """Sentences in which each word follows from the one before."""
    write_sentences(tmp_path)
    return tmp_path


@pytest.fixture
def arguments(data):
    return [
        "--quick",
        *("--data", str(data)),
        *("--output", str(data / "results.json")),
        *("--cache", str(data / "cache")),
    ]


def test_rows(benchmark, arguments, data, capsys):
    rows = "conventional|linear.linear|nearest"
    benchmark.main([*arguments, "--rows", rows])
    saved = json.loads((data / "results.json").read_text())["rows"]
    conventional, linear, nearest = saved
    assert conventional["ratio"] == 1
    # 31 words, of width 8.
    assert conventional["parameters"] == 31 * 8
    assert conventional["bytes"] == 31 * 8 * 4
    assert linear["parameters"] == 4 * 4 * 8 + 8 * 8
    assert linear["bytes"] == 31 * 1 + 4 * 4 * 8 * 4
    assert linear["paper"] == 118.40
    assert nearest["parameters"] == 4 * 8
    assert nearest["bytes"] == 31 * 1 + 4 * 8 * 4
    for row in saved:
        assert 1 < row["test"] < 35 and len(row["valid_by_epoch"]) == 2
        assert abs(row["valid"] - row["valid_by_epoch"][-1]) < 0.01
    assert "| linear+linear | 4 x 4 |" in capsys.readouterr().out


def test_goes_on_where_it_stopped(benchmark, arguments, data, monkeypatch):
    arguments += ["--rows", "conventional"]

    class Stop(benchmark.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    reset = benchmark.word_lstm._ResetStates
    monkeypatch.setattr(benchmark.word_lstm, "_ResetStates", Stop)
    with pytest.raises(KeyboardInterrupt):
        benchmark.main(arguments)
    (log,) = (data / "cache").glob("*/*/epochs.json")
    (first,) = json.loads(log.read_text())
    begun = []
    monkeypatch.setattr(benchmark.word_lstm, "_ResetStates", reset)
    monkeypatch.setattr(
        reset,
        "on_epoch_begin",
        lambda self, epoch, logs=None: begun.append(epoch),
    )
    (row,) = benchmark.main(arguments)
    assert begun == [1]
    assert row["valid_by_epoch"][0] == round(first["valid"], 2)
    # Nothing of it runs again.
    assert benchmark.main(arguments) == [row]
    assert begun == [1]


def test_text_is_read_in_order(benchmark, data):
    text = benchmark.word_lstm.Text(data / "ptb")
    assert (np.diff(text.counts) <= 0).all()
    inputs, targets = text.segments("train", batch_size=4, steps=5)
    stream = inputs.reshape(-1, 4, 5)[:, 0].ravel()
    np.testing.assert_array_equal(stream, text.ids["train"][: len(stream)])
    np.testing.assert_array_equal(
        targets.reshape(-1, 4, 5)[:, 0].ravel(),
        text.ids["train"][1 : len(stream) + 1],
    )


def test_data_must_be_named(benchmark, monkeypatch):
    monkeypatch.setenv("COMPEMBED_DATA", "")
    with pytest.raises(SystemExit, match="--data"):
        benchmark.main(["--quick", "--data", ""])
