"""The benchmark of classifiers runs in its quick mode."""

import json

import pytest
from benchmark_files import load


@pytest.fixture
def benchmark():
    return load("class_accuracy")


@pytest.fixture
def arguments(tmp_path):
    return ["--quick", "--output", str(tmp_path / "results.json")]


def test_rows(benchmark, arguments, tmp_path, capsys):
    arguments += ["--rows", r"^full|^NCE|hierarchical|adaptive|^CANE 1\+9$"]
    arguments += ["--learning-rates", "0.01"]
    rows = benchmark.main(arguments)
    saved = json.loads((tmp_path / "results.json").read_text())
    assert saved["rows"] == rows and saved["settings"]["epochs"] == 2
    for row in rows:
        # 1,000 examples in batches of 50, twice; of 100 classes.
        assert row["steps"] == 40 and row["seconds"] > 0
        for part in ("valid", "test"):
            figures = row[part]
            assert 0.1 < figures["accuracy"] < figures["top_5_accuracy"] < 1
            assert 1 < figures["loss"] < 4.6
    *rivals, cane = rows
    assert [row["head"] for row in rivals] == [
        *("full", "nce", "hierarchical", "adaptive")
    ]
    assert not any("first" in row for row in rivals)
    # One candidate, which is mostly the best of all classes.
    assert cane["test"]["coverage"] <= cane["test"]["accuracy"] + 0.1
    assert cane["first"]["beam_width"] == 1
    assert cane["calibrated"]["beam_width"] > 1
    assert cane["first"]["recall"] < cane["calibrated"]["recall"]
    assert 0.9 < cane["calibrated"]["recall"] <= 1
    assert abs(cane["calibrated"]["accuracy"] - cane["test"]["accuracy"]) < 0.1
    for times in cane["times_faster"].values():
        assert times["dense_ms"] > 0 and times["search_ms"] > 0
    printed = capsys.readouterr().out
    assert "| CANE 1+9 | " in printed and "| NCE 10 | " in printed
    # What stands there is not run again.
    assert benchmark.main(arguments) == rows


def test_learning_rates(benchmark, arguments):
    arguments += ["--rows", "^sampled softmax 10$"]
    arguments += ["--learning-rates", "1e-9,0.02"]
    (row,) = benchmark.main(arguments)
    assert set(row["valid_accuracy_by_learning_rate"]) == {"1e-09", "0.02"}
    assert row["learning_rate"] == 0.02
    # Biases of the layer alone.
    assert row["valid_accuracy_by_learning_rate"]["1e-09"] < 0.3


def test_data_must_be_named(benchmark, monkeypatch):
    monkeypatch.setenv("COMPEMBED_DATA", "")
    with pytest.raises(SystemExit, match="--data"):
        benchmark.main(["--data", "", "--task", "clinc150"])
