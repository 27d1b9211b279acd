"""Benchmarks run, each once in its quick mode with a few rows."""

import pytest
from benchmark_files import figures
from benchmark_files import load
from benchmark_files import quick
from benchmark_files import write_sentences

pytestmark = pytest.mark.slow

# Flags, and how many rows there are.
SMALL = {
    "anchors.books": ({}, 2),
    "anchors.language_model": ({}, 2),
    "anchors.from_table": ({"by": "task", "rows": "^(table|anchors|group)"}, 4),
    "classes.tree_classifiers": ({"rows": "^(full softmax|CANE 5.5)$"}, 2),
    "codes.clusters": ({}, 3),
    "codes.language_model": ({"rows": "conventional|linear.linear"}, 2),
    "codes.models": ({"rows": "shared"}, 1),
    "codes.sentiment": ({"rows": "^(table|Gumbel)"}, 2),
    "codes.tied": ({"rows": "gpt2, (table|int2)"}, 2),
    "codes.training_step": ({"rows": "^(table|anchors); A"}, 2),
    "litert.whole_models": ({"by": "model"}, 8),
    "vectors.files": ({"rows": "command|neighbors"}, 6),
    "vectors.quality": ({}, 3),
}


# Keras's own Adam, which is there for comparison, warns of tables it fills.
@pytest.mark.filterwarnings("ignore:Converting sparse")
@pytest.mark.parametrize("name", SMALL)
def test_small_benchmark(name, tmp_path):
    flags, number = SMALL[name]
    if name.endswith(("language_model", "from_table", "tied")):
        write_sentences(tmp_path)
        flags = {**flags, "data": tmp_path}
    if name == "codes.language_model":
        flags["cache"] = tmp_path / "cache"
    assert len(quick(name, **flags)) == number


def test_anchors_of_classifiers():
    full, l1 = quick(
        "anchors.classification", rows="^(full table|l1)", tasks="words"
    ).values()
    assert full["times_fewer"] == 1 and full["test"] > 0.6
    assert l1["parameters"] == l1["nonzeros"] + 4 * 8


def test_learning_of_codes():
    rows = quick("codes.learning", methods="additive,gumbel,kd")
    additive, *others = rows.values()
    assert additive["relative_error_centred"] < 0.5
    for plain, refined in zip(others[::2], others[1::2], strict=True):
        assert refined["loss"] < plain["loss"]


def test_translation(tmp_path):
    pytest.importorskip("sacrebleu")
    flags = {"cache": tmp_path, "rows": "^(LSTM, (table|Gumbel)|transf.*int2)"}
    table, *others = quick("codes.translation", **flags).values()
    assert len(others) == 3
    for found in (table, *others):
        assert found["litert_same"] == 1
        assert found["counted_bytes"] <= table["counted_bytes"]


def test_lookups_in_litert():
    rows = "^(table, float32|quantized, int4)"
    found = quick("litert.lookups", by="pooled", rows=rows)
    # 2,000 rows of 32 numbers, a scale for each in few bits, and a graph.
    for name, row_bytes in (("table, float32", 128), ("quantized, int4", 17)):
        size = found[False, name]["file_bytes"]
        assert 500 < size - 2000 * row_bytes < 4000


def test_speed_of_classes(monkeypatch):
    pytest.importorskip("ai_edge_litert")
    speed = load("classes.speed")
    # Compilation by XLA takes half a minute, and is tested with the layer.
    monkeypatch.setattr(speed, "COMPILED", (False,))
    rows = speed.main(["--quick", "--rows", "^(subsets|beam of 5)"])
    parts = {row["row"]["part"] for row in rows}
    assert parts == {"training", "prediction", "litert"}
    assert all(figures(row)["fastest"] > 0 for row in rows)


def test_head_to_head(tmp_path):
    flags = {"output": tmp_path / "record.json", "rates": "0.01,0.03"}
    flags["bounds"] = "sampled softmax"
    reference, other, bound = quick("classes.head_to_head", **flags).values()
    assert reference["relative_time"] == 1 and bound["steps"] == 30
    for found in (reference, other, bound):
        assert found["steps"] > 0
        assert found["valid"]["perplexity"] == min(found["tried"].values())
        assert 1 < found["test"]["perplexity"] < 31


def test_comparison(tmp_path, monkeypatch):
    accuracy = load("comparison.accuracy")
    monkeypatch.setattr(accuracy, "BEST", 1)
    monkeypatch.setattr(accuracy, "NUM_TUNED", 1)
    flags = ["--quick", "--output", str(tmp_path / "record.json")]
    flags += ["--cache", str(tmp_path / "cache"), "--methods", "table,search"]
    flags += ["--tasks", "generated", "--seeds", "0,1"]
    rows = accuracy.main([*flags, "--picture", str(tmp_path)])
    picture = tmp_path / "comparison_generated.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    # The table has two seeds, the second at the first's rate.
    assert [len(row["runs"]) for row in rows] == [2, 1]
    first, second = (run["figures"] for run in rows[0]["runs"])
    assert second["rate"] == first["rate"]
    assert figures(rows[1])["bytes"] <= first["bytes"] // 4
