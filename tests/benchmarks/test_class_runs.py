"""Benchmarks of many classes run, each once in its quick mode."""

import itertools

import pytest
from benchmark_files import figures
from benchmark_files import load
from benchmark_files import quick
from benchmark_files import write_sentences

from benchmarks.classes import tasks

pytestmark = pytest.mark.slow

equal_time = load("classes.equal_time")
WORDS, LABELS, VISITS, LINKS = tasks.QUICK


def test_accuracy():
    """The better of two rates is taken; of one, nothing but biases learns."""
    flags = {"learning_rates": "1e-9,0.02"}
    flags["rows"] = r"^sampled softmax 10$|^CANE 1\+9$"
    rows = quick("classes.accuracy", "| CANE 1+9 | ", **flags)
    sampled, cane = rows.values()
    for row in (sampled, cane):
        # 1,000 examples in batches of 50, twice; of 100 classes.
        assert row["steps"] == 40 and row["seconds"] > 0
        for part in ("valid", "test"):
            found = row[part]
            assert 0.1 < found["accuracy"] < found["top_5_accuracy"] < 1
            assert 1 < found["loss"] < 4.6
        tried = row["valid_accuracy_by_learning_rate"]
        assert list(tried) == ["1e-09", "0.02"]
        assert tried["1e-09"] < tried["0.02"]
        assert row["learning_rate"] == 0.02
    # One candidate, which is mostly the best of all classes.
    assert cane["test"]["coverage"] <= cane["test"]["accuracy"] + 0.1


def test_language_model(tmp_path):
    write_sentences(tmp_path)
    flags = {"data": tmp_path, "rows": "sampled|converged"}
    rows = quick("classes.language_model", "| sampled softmax |", **flags)
    for row in rows.values():
        assert 1 < row["test"] < 35 and 1 < row["valid"] < 35
        assert row["steps_per_second"] == pytest.approx(
            row["steps"] / row["seconds"], rel=0.02
        )
        # A row that has its time alone may be over before a mark is looked at.
        assert len(row["curve"]) <= 2
        for before, after in itertools.pairwise([*row["curve"], row]):
            assert 0 < before["seconds"] < after["seconds"]
            assert 0 < before["steps"] < after["steps"]
            assert 1 < before["valid"] < 35
    assert rows["sampled softmax"]["seconds"] >= 0.5
    converged = rows["full softmax, converged"]
    # 540 words are 44 segments of 4 x 3, twice.
    assert converged["steps"] == 88 and converged["epochs"] == 2
    assert [point["steps"] for point in converged["curve"]] == [30, 59]
    flags |= {"rows": "^bigrams$", "seconds": 0.1}
    flags["learning_rates"] = "1e-6,0.05"
    rows = quick("classes.language_model", "| bigrams | 2 | 6 |", **flags)
    (row,) = rows.values()
    assert set(row["valid_by_learning_rate"]) == {"1e-06", "0.05"}
    assert row["learning_rate"] == 0.05


def test_speed(capsys, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    speed = load("classes.speed")
    # Compilation by XLA takes half a minute, and is tested with the layer.
    monkeypatch.setattr(speed, "COMPILED", (False,))
    rows = speed.main(["--quick", "--rows", "^(subsets|full|beam of 5|all)"])
    parts = {"training": [], "prediction": [], "litert": []}
    for row in rows:
        found = figures(row)
        assert 0 < found["fastest"] <= found["milliseconds"]
        parts[row["row"]["part"]].append(found)
    assert [len(found) for found in parts.values()] == [3, 4, 4]
    # 8 bits a weight take less.
    sizes = [found["file_bytes"] for found in parts["litert"]]
    assert sizes[2] < sizes[0] and sizes[3] < sizes[1]
    printed = capsys.readouterr().out
    assert "| training | 300 | subsets 40+1 | SGD | False |" in printed


def test_tree_classifiers():
    names = "^(full softmax|CANE 5.5)$"
    rows = quick("classes.tree_classifiers", rows=names)
    assert list(rows) == ["full softmax", "CANE 5+5"]
    for row in rows.values():
        # Of 100 classes, of which the most frequent has a fifth.
        assert 0.22 < row["valid"] < 1 and 0.22 < row["accuracy"] < 1
        assert row["valid"] == max(row["tried"].values())
        assert row["train_seconds"] > 0 and row["predict_ms"] > 0


def test_search():
    product, all_classes, search = (
        figures(row)
        for row in load("classes.search").main(
            ["--quick", "--tasks", "synthetic_100"]
        )
    )
    assert product["num_classes"] == 100 and product["times_faster"] == 1
    assert "recall" not in all_classes
    assert 0.7 < search["recall"] <= 1
    # 12 lists of 9 classes.
    assert search["share"] == search["lists"] * 9 / 100 < 1.08


def test_equal_time(tmp_path, monkeypatch, capsys):
    """Rows with one seed, then the best with another."""
    monkeypatch.setattr(equal_time, "BEST", 1)
    flags = ["--quick", "--output", str(tmp_path / "record.json")]
    words = [*flags, "--tasks", WORDS.name, "--seeds", "0,1"]
    words += ["--methods", "NCE,CANE 1/4 frequent"]
    rows = equal_time.main(words)
    for row in rows:
        first, second = (run["figures"] for run in row["runs"])
        # Both rates are tried, and then that which was better.
        assert len(first["tried"]) == 2
        assert first["valid"]["perplexity"] == min(first["tried"].values())
        assert list(second["tried"]) == [f"{first['rate']:g}"]
        for found in (first, second):
            assert found["seconds"] >= WORDS.seconds
            assert 1 < found["test"]["perplexity"] < 31
    names = ",".join(task.name for task in (LABELS, VISITS, LINKS))
    flags += ["--tasks", names, "--rates", "0.03"]
    flags += ["--methods", "full softmax"]
    labels, visits, answers = equal_time.main(flags)
    assert 0.3 < figures(labels)["test"]["accuracy"] < 0.7
    assert 0.3 < figures(visits)["test"]["ndcg"] < 0.8
    # Of 100, one at random has 0.05.
    assert 0.02 < figures(answers)["test"]["mrr"] < 0.9
    printed = capsys.readouterr().out
    assert "| made-up visits | full softmax |" in printed


def test_head_to_head(tmp_path):
    record = tmp_path / "record.json"
    line = "| made-up words | NCE |"
    rows = quick("classes.head_to_head", line, output=record)
    reference, other = rows.values()
    assert reference["steps"] == 30 and reference["relative_time"] == 1
    assert other["steps"] == round(30 / other["relative_time"])
    for found in (reference, other):
        assert 1 < found["test"]["perplexity"] < 31
