"""Benchmarks of many classes run, each once in its quick mode."""

import pytest
from benchmark_files import figures
from benchmark_files import load
from benchmark_files import quick

from benchmarks.classes import tasks

pytestmark = pytest.mark.slow

WORDS, LABELS, VISITS, LINKS = tasks.QUICK


def test_speed(monkeypatch):
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
    assert [len(found) for found in parts.values()] == [2, 4, 4]
    # 8 bits a weight take less.
    sizes = [found["file_bytes"] for found in parts["litert"]]
    assert sizes[2] < sizes[0] and sizes[3] < sizes[1]


def test_tree_classifiers():
    names = "^(full softmax|CANE 5.5)$"
    rows = quick("classes.tree_classifiers", rows=names)
    assert list(rows) == ["full softmax", "CANE 5+5"]
    for row in rows.values():
        # Of 100 classes, of which the most frequent has a fifth.
        assert 0.22 < row["valid"] < 1 and 0.22 < row["accuracy"] < 1
        assert row["valid"] == max(row["tried"].values())
        assert row["train_seconds"] > 0 and row["predict_ms"] > 0
    assert 0.22 < rows["CANE 5+5"]["coverage"] <= 1


def test_head_to_head(tmp_path):
    """Both rates are tried with the first seed; of all kinds of tasks."""
    flags = {"output": tmp_path / "record.json", "rates": "0.01,0.03"}
    rows = quick("classes.head_to_head", **flags)
    reference, other = rows.values()
    assert reference["steps"] == 30 and reference["relative_time"] == 1
    assert other["steps"] == round(30 / other["relative_time"])
    for found in (reference, other):
        assert len(found["tried"]) == 2
        assert found["valid"]["perplexity"] == min(found["tried"].values())
        assert 1 < found["test"]["perplexity"] < 31
    flags["rates"], flags["methods"] = 0.03, "full softmax,CANE in subsets"
    flags["tasks"] = ",".join(task.name for task in (LABELS, VISITS, LINKS))
    rows = quick("classes.head_to_head", **flags)
    for name, metric, least, most in (
        (LABELS.name, "accuracy", 0.2, 0.8),
        (VISITS.name, "ndcg", 0.3, 0.8),
        # Of 100, one at random has 0.05.
        (LINKS.name, "mrr", 0.02, 0.9),
    ):
        found = rows[f"{name}; full softmax"]["test"][metric]
        assert least < found < most
