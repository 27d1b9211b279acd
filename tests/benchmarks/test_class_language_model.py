"""The benchmark of sampled words runs in its quick mode, on generated text."""

import itertools
import json

import numpy as np
import pytest
from benchmark_files import load
from benchmark_files import write_sentences


@pytest.fixture
def benchmark():
    return load("class_language_model")


@pytest.fixture
def arguments(tmp_path):
    write_sentences(tmp_path)
    return [
        "--quick",
        *("--data", str(tmp_path)),
        *("--output", str(tmp_path / "results.json")),
    ]


def test_rows(benchmark, arguments, tmp_path, capsys):
    arguments += ["--rows", "sampled|paper|^bigrams$|converged"]
    rows = benchmark.main(arguments)
    saved = json.loads((tmp_path / "results.json").read_text())
    assert saved["rows"] == rows and saved["settings"]["sampled"] == 8
    sampled, paper, bigrams, converged = rows
    for row in rows:
        assert 1 < row["test"] < 35 and 1 < row["valid"] < 35
        assert row["steps_per_second"] == pytest.approx(
            row["steps"] / row["seconds"], rel=0.02
        )
        # A row that has its time alone may be over before a mark is looked at.
        assert len(row["curve"]) <= 2
        for first, second in itertools.pairwise([*row["curve"], row]):
            for key in ("seconds", "steps"):
                assert 0 < first[key] < second[key]
            assert 1 < first["valid"] < 35
    for row in (sampled, paper, bigrams):
        assert row["seconds"] >= 0.5
    assert (paper["candidates"], paper["noises"]) == (8, 1)
    assert (bigrams["candidates"], bigrams["noises"]) == (2, 6)
    # 540 words are 44 segments of 4 x 3, twice.
    assert converged["steps"] == 88 and converged["epochs"] == 2
    assert [point["steps"] for point in converged["curve"]] == [30, 59]
    printed = capsys.readouterr().out
    assert "| bigrams | 2 | 6 |" in printed
    assert "| sampled softmax |  | 8 |" in printed
    # What stands there is not run again.
    assert benchmark.main(arguments) == rows


def test_learning_rates(benchmark, arguments):
    arguments += ["--rows", "^frequent$"]
    arguments += ["--learning-rates", "1e-6,0.05"]
    (row,) = benchmark.main(arguments)
    assert set(row["valid_by_learning_rate"]) == {"1e-06", "0.05"}
    assert row["learning_rate"] == 0.05


def test_recall_of_searches(benchmark, arguments, tmp_path, capsys):
    arguments += ["--rows", "^beam$|^nearest$"]
    beam, nearest = rows = benchmark.main(arguments)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows
    assert 0 <= beam["recall_as_trained"] <= beam["recall"] <= 1
    # Few enough words that the tree is scored whole.
    assert beam["recall"] == 1 and beam["beam_width"] == 1
    assert 0 < nearest["recall"] <= 1
    assert "| 1 | 100.00% |" in capsys.readouterr().out


def test_context_vectors(benchmark):
    rng = np.random.default_rng(0)
    # Words of two kinds in turn.
    ids = np.stack(
        [rng.integers(10, size=500), 10 + rng.integers(10, size=500)]
    )
    vectors = benchmark.context_vectors(ids.T.ravel(), 20, width=4)
    assert vectors.shape == (20, 4)
    first, second = vectors[:10].mean(0), vectors[10:].mean(0)
    near = np.square(vectors - first).sum(1) < np.square(vectors - second).sum(
        1
    )
    assert near.tolist() == [True] * 10 + [False] * 10


def test_data_must_be_named(benchmark, monkeypatch):
    monkeypatch.setenv("COMPEMBED_DATA", "")
    with pytest.raises(SystemExit, match="--data"):
        benchmark.main(["--quick", "--data", ""])
