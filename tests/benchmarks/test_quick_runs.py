"""Benchmarks run, each once in its quick mode with a few rows.

Those of classes are in `test_class_runs.py`.
"""

import pytest
from benchmark_files import load
from benchmark_files import quick
from benchmark_files import write_sentences

pytestmark = pytest.mark.slow


# Flags, and how many rows there are.
SMALL = {
    "codes.clusters": ({}, 3),
    "codes.pooled_step": ({"words": "zipf"}, 5),
    "codes.training_step": ({}, 2),
    "litert.whole_models": ({"by": "model"}, 8),
    "vectors.quality": ({}, 3),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_benchmark(name):
    flags, number = SMALL[name]
    rows = quick(name, **flags)
    assert len(rows) == number
    for found in rows.values():
        if {"fastest", "milliseconds"} <= set(found):
            assert found["fastest"] <= found["milliseconds"]


@pytest.fixture
def folders(tmp_path):
    """A folder of sentences, and one of what is kept."""
    write_sentences(tmp_path)
    return {"data": tmp_path, "cache": tmp_path / "cache"}


def test_anchors_of_classifiers(tmp_path):
    names = "^(full table|l1|frequency|relations)"
    flags = {"picture": tmp_path, "tasks": "words", "rows": names}
    rows = quick("anchors.classification", **flags)
    full = rows["full table"]
    words = full["parameters"] // 8
    # 180 words, most of which occur twice, padding and unknown.
    assert 150 < words <= 182
    assert full["times_fewer"] == 1 and full["bytes"] == 4 * 8 * words
    assert full["test"] > 0.6
    for name in ("l1 1e-3", "frequency", "relations"):
        found = rows[name]
        assert found["parameters"] == found["nonzeros"] + 4 * 8
    assert rows["frequency"]["nonzeros"] == 150
    assert (tmp_path / "ant_words.png").read_bytes().startswith(b"\x89PNG")


def test_anchors_of_language_models(folders):
    rows = quick("anchors.language_model", data=folders["data"])
    table, anchors = rows.values()
    # 31 words, of width 8.
    assert table["parameters"] == 31 * 8
    assert 6 * 8 < anchors["parameters"] <= 6 * 8 + 31 * 6
    assert all(1 < row["test"] < 40 for row in rows.values())


def test_anchors_from_a_table(folders, tmp_path):
    folders["rows"] = "^(table|anchors|group lasso)"
    rows = quick("anchors.from_table", by="task", **folders)
    table, anchors, others, lasso = rows.values()
    # 31 words, of width 8; then words of width 8 too.
    assert table["numbers"] == 31 * 8 and anchors["numbers"] <= 130
    # The same first half.
    assert table["valid_before"] < anchors["valid_before"] < 40
    assert others["numbers"] <= 400 == lasso["numbers"]
    assert others["test"] > 60 and lasso["test"] > 60
    assert len(list((tmp_path / "cache").iterdir())) == 3


# Keras's own Adam, which is there for comparison, warns of tables it fills.
@pytest.mark.filterwarnings("ignore:Converting sparse")
def test_storage_of_anchors():
    flags = {"by": "memory", "input_dims": 100, "rows": "^(dense|sparse)"}
    *times, memory = quick("anchors.storage", **flags).values()
    assert len(times) == 2 and memory["peak_bytes"] > 1e8


def test_learning_of_codes():
    rows = quick("codes.learning", methods="additive,gumbel,kd")
    additive, *others = rows.values()
    assert additive["relative_error_centred"] < 0.5
    for plain, refined in zip(others[::2], others[1::2], strict=True):
        assert refined["loss"] < plain["loss"]
        assert refined["cpu_seconds"] >= plain["cpu_seconds"]


def test_sentiment():
    table, codes = quick("codes.sentiment", rows="^(table|Gumbel)").values()
    assert table["relative_error"] == 0 < codes["relative_error"]
    assert table["counted_bytes"] == 4 * 500 * 16
    # Codes of 12 bits take two bytes a row; codewords are float32.
    assert codes["counted_bytes"] == 500 * 2 + 4 * 4 * 8 * 16
    assert table["accuracy"] > 0.8 and codes["accuracy"] > 0.8


def test_codes_of_language_models(folders):
    folders["rows"] = "conventional|linear.linear"
    rows = quick("codes.language_model", **folders)
    conventional, linear = rows.values()
    assert conventional["ratio"] == 1 and linear["paper"] == 118.40
    # 31 words, of width 8.
    assert conventional["parameters"] == 31 * 8
    assert conventional["bytes"] == 31 * 8 * 4
    assert linear["parameters"] == 4 * 4 * 8 + 8 * 8
    assert linear["bytes"] == 31 * 1 + 4 * 4 * 8 * 4
    for row in rows.values():
        assert 1 < row["test"] < 35 and len(row["valid_by_epoch"]) == 2


def test_models_of_codes():
    (found,) = quick("codes.models", rows="shared").values()
    assert found["before_embedding_bytes"] == 4 * 1100 * 16
    # A byte for two subcodes, and codebooks.
    assert found["after_embedding_bytes"] == 1100 * 2 + 4 * 4 * 16 * 16
    for name in ("keras_bytes", "litert_bytes"):
        assert found[f"after_{name}"] < found[f"before_{name}"]
    assert found["after_reload_difference"] < 1e-5
    assert found["after_litert_difference"] < 1e-5


def test_lookups_in_litert(tmp_path):
    path = tmp_path / "picture.png"
    flags = {"full_dim": 2000, "picture": path, "picture_length": 8}
    flags["rows"] = "^(table, (float32|int8)|rounded, int4|codes)"
    found = quick("litert.lookups", by="pooled", **flags)
    assert path.read_bytes().startswith(b"\x89PNG")
    # 2,000 rows of 32 numbers, a scale for each in few bits, and a graph.
    for name, row_bytes in (
        ("table, float32", 128),
        ("table, int8", 32),
        ("rounded, int4", 16 + 1),
        ("rounded, int4 rank 16", 8 + 1 + 1),
    ):
        size = found[False, name]["file_bytes"]
        assert 500 < size - 2000 * row_bytes < 4000


def test_comparison(tmp_path, monkeypatch):
    """Texts with two seeds, then visits."""
    accuracy = load("comparison.accuracy")
    monkeypatch.setattr(accuracy, "BEST", 1)
    monkeypatch.setattr(accuracy, "NUM_TUNED", 1)
    flags = ["--output", str(tmp_path / "record.json")]
    flags = ["--quick", *flags, "--cache", str(tmp_path / "cache")]
    texts = [*flags, "--tasks", "generated", "--seeds", "0,1"]
    texts += ["--methods", "table,search"]
    rows = accuracy.main([*texts, "--picture", str(tmp_path)])
    assert (tmp_path / "comparison_generated.png").read_bytes()[
        :4
    ] == b"\x89PNG"
    # The table has two seeds, the second at the first's rate.
    assert [len(row["runs"]) for row in rows] == [2, 1]
    first, second = (run["figures"] for run in rows[0]["runs"])
    assert second["rate"] == first["rate"]
    assert len(first["tried"]) == 2 and len(second["tried"]) == 1
    visits = ["--tasks", "made up", "--methods", "table,pruned"]
    rows += accuracy.main([*flags, *visits, "--rates", "0.01"])
    found = {row["name"]: row["runs"][0]["figures"] for row in rows}
    for task in ("generated", "made up"):
        size = found[f"{task}, table"]["bytes"]
        assert len(found[f"{task}, table"]["schedules"]) == 2
        for name, one in found.items():
            if name.startswith(f"{task}, 1/4"):
                assert one["bytes"] <= size // 4


def test_files_of_vectors(tmp_path):
    flags = {"folder": tmp_path, "rows": "command|neighbors"}
    rows = quick("vectors.files", **flags)
    assert rows["command"]["bytes"] <= 8000 < rows["command"]["text_bytes"]
    assert len(rows) == 2 + len(load("vectors.files").STORED)
