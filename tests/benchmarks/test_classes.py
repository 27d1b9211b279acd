"""Benchmarks of many classes run, each once in its quick mode."""

import importlib.util
import itertools
import re

import numpy as np
import pytest
from benchmark_files import figures
from benchmark_files import write_sentences

from benchmarks.classes import accuracy
from benchmarks.classes import language_model
from benchmarks.classes import memory
from benchmarks.classes import search as search_benchmark
from benchmarks.classes import speed
from benchmarks.classes import tree_classifiers
from benchmarks.common.arguments import parse


@pytest.mark.slow
def test_accuracy(capsys):
    arguments = ["--quick", "--learning-rates", "0.01"]
    arguments += ["--rows", r"^full|^NCE|hierarchical|adaptive|^CANE 1\+9$"]
    rows = accuracy.main(arguments)
    assert rows[0]["settings"]["epochs"] == 2
    for row in map(figures, rows):
        # 1,000 examples in batches of 50, twice; of 100 classes.
        assert row["steps"] == 40 and row["seconds"] > 0
        for part in ("valid", "test"):
            found = row[part]
            assert 0.1 < found["accuracy"] < found["top_5_accuracy"] < 1
            assert 1 < found["loss"] < 4.6
    assert [row["row"]["head"] for row in rows[:-1]] == [
        *("full", "nce", "hierarchical", "adaptive")
    ]
    *rivals, cane = map(figures, rows)
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


@pytest.mark.slow
def test_accuracy_at_learning_rates():
    arguments = ["--quick", "--rows", "^sampled softmax 10$"]
    (row,) = accuracy.main([*arguments, "--learning-rates", "1e-9,0.02"])
    found = figures(row)
    assert set(found["valid_accuracy_by_learning_rate"]) == {"1e-09", "0.02"}
    assert found["learning_rate"] == 0.02
    # Biases of the layer alone.
    assert found["valid_accuracy_by_learning_rate"]["1e-09"] < 0.3


def test_tasks_have_records_of_their_own():
    paths = {
        accuracy.Accuracy.path(
            parse(accuracy.Accuracy, "classes.accuracy", ["--task", task])
        ).name
        for task in ("job_titles", "clinc150")
    }
    assert paths == {"accuracy_job_titles.json", "accuracy_clinc150.json"}


@pytest.fixture
def arguments(tmp_path):
    write_sentences(tmp_path)
    return ["--quick", "--data", str(tmp_path)]


@pytest.mark.slow
def test_language_model(arguments, capsys):
    arguments += ["--rows", "sampled|paper|converged|^beam$|^nearest$"]
    found = language_model.main(arguments)
    assert found[0]["settings"]["sampled"] == 8
    rows = {row["name"]: figures(row) for row in found}
    for row in rows.values():
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
    for name in ("sampled softmax", "paper: subsets"):
        assert rows[name]["seconds"] >= 0.5
    paper = {row["name"]: row["row"] for row in found}["paper: subsets"]
    assert (paper["candidates"], paper["noises"]) == (8, 1)
    converged = rows["full softmax, converged"]
    # 540 words are 44 segments of 4 x 3, twice.
    assert converged["steps"] == 88 and converged["epochs"] == 2
    assert [point["steps"] for point in converged["curve"]] == [30, 59]
    beam, nearest = rows["beam"], rows["nearest"]
    assert 0 <= beam["recall_as_trained"] <= beam["recall"] <= 1
    # Few enough words that the tree is scored whole.
    assert beam["recall"] == 1 and beam["beam_width"] == 1
    assert 0 < nearest["recall"] <= 1
    printed = capsys.readouterr().out
    assert "| sampled softmax |  | 8 |" in printed
    assert "| 1 | 100.00 % |" in printed


@pytest.mark.slow
def test_language_model_at_learning_rates(arguments, capsys):
    arguments += ["--rows", "^bigrams$", "--learning-rates", "1e-6,0.05"]
    (row,) = language_model.main(arguments)
    assert (row["row"]["candidates"], row["row"]["noises"]) == (2, 6)
    found = figures(row)
    assert set(found["valid_by_learning_rate"]) == {"1e-06", "0.05"}
    assert found["learning_rate"] == 0.05
    assert found["seconds"] >= 0.5
    assert "| bigrams | 2 | 6 |" in capsys.readouterr().out


def test_context_vectors():
    rng = np.random.default_rng(0)
    # Words of two kinds in turn.
    ids = np.stack(
        [rng.integers(10, size=500), 10 + rng.integers(10, size=500)]
    )
    vectors = language_model.context_vectors(ids.T.ravel(), 20, width=4)
    assert vectors.shape == (20, 4)
    first, second = vectors[:10].mean(0), vectors[10:].mean(0)
    near = np.square(vectors - first).sum(1) < np.square(vectors - second).sum(
        1
    )
    assert near.tolist() == [True] * 10 + [False] * 10


@pytest.mark.slow
def test_speed(capsys, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    # Compilation by XLA takes half a minute, and is tested with the layer.
    monkeypatch.setattr(speed, "COMPILED", (False,))
    names = "tree|frequent|near|subsets|full|Dense|sampled|beam of 5|all"
    rows = speed.main(["--quick", "--rows", f"^({names})"])
    for row in map(figures, rows):
        assert 0 < row["fastest"] <= row["milliseconds"]
    parts = [row["row"]["part"] for row in rows]
    assert [parts.count(part) for part in ("training", "prediction")] == [16, 4]
    sizes = [
        figures(row)["file_bytes"]
        for row in rows
        if row["row"]["part"] == "litert"
    ]
    assert len(sizes) == 4
    # 8 bits a weight take less.
    for with_floats, with_bits in zip(sizes[:2], sizes[2:], strict=True):
        assert with_bits < with_floats
    printed = capsys.readouterr().out
    assert "| training | 300 | subsets 40+1 | SGD | False |" in printed


def test_rows_of_speed():
    flags = ["--quick", "--num-classes", "300,1200"]
    args = parse(speed.Speed, "classes.speed", flags)
    rows = speed.Speed(args, None).rows()
    training = [row.num_classes for row in rows if row.part == "training"]
    of_all = len(speed.VARIANTS)
    # No softmax over all classes where there are many.
    # Of 200, what scores some or all of them, by XLA and not.
    assert training == [*[200] * 8, *[300] * of_all, *[1200] * (of_all - 4)]
    of_many = [row for row in rows if row.num_classes == 1200]
    assert not any(row.part == "litert" for row in of_many)
    assert not any(
        row.name == "all scores" and row.jit_compile for row in of_many
    )
    assert {row.batch_size for row in rows if row.part == "prediction"} == {
        *(1, 16)
    }


@pytest.mark.slow
def test_tree_classifiers(capsys):
    names = ["full softmax", "CANE 5+5", "hierarchical softmax"]
    if importlib.util.find_spec(tree_classifiers.PACKAGE):
        names += ["Recall Tree", "LOMTree"]
    asked = f"^({'|'.join(map(re.escape, names))})$"
    rows = tree_classifiers.main(["--quick", "--rows", asked])
    assert [row["name"] for row in rows] == names
    for row in map(figures, rows):
        # Of 100 classes, of which the most frequent has a fifth.
        assert 0.22 < row["valid"] < 1 and 0.22 < row["accuracy"] < 1
        assert row["valid"] == max(row["tried"].values())
        assert row["train_seconds"] > 0 and row["predict_ms"] > 0


@pytest.mark.slow
def test_search():
    product, all_classes, search = map(
        figures, search_benchmark.main(["--quick", "--tasks", "synthetic_100"])
    )
    assert product["num_classes"] == 100 and product["times_faster"] == 1
    assert "recall" not in all_classes
    assert 0.7 < search["recall"] <= 1
    # 12 lists of 9 classes.
    assert search["share"] == search["lists"] * 9 / 100 < 1.08
    assert search["share_needed"] == 0.09


@pytest.mark.slow
def test_memory():
    arguments = ["--quick", "--rows", "SGD"]
    ours, full = map(figures, memory.main(arguments))
    # Vectors and biases of 3,000 classes, 8 wide, and the table of noises.
    assert ours["variable_bytes"] == full["variable_bytes"]
    assert full["variable_bytes"] >= 3000 * (9 * 4 + 8)
    for row in ours, full:
        assert row["training_bytes"] >= 0
        assert row["evaluation_bytes"] >= 0
