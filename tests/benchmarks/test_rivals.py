"""The benchmark of all methods at equal bytes, and what pages print of it."""

import numpy as np
import pytest

from benchmarks import tables as pages
from benchmarks.common import best_rows
from benchmarks.common.arguments import parse
from benchmarks.rivals import accuracy
from benchmarks.rivals import methods
from benchmarks.rivals import pictures
from benchmarks.rivals.tasks import QUICK
from benchmarks.rivals.tasks import TASKS
from benchmarks.rivals.tasks import Task

SHAPE = (2000, 64)
COUNTS = np.arange(2000)[::-1].astype("float32")


@pytest.mark.slow
def test_rivals(tmp_path, monkeypatch, capsys):
    """What is left, then texts with two seeds, then visits."""
    monkeypatch.setattr(accuracy, "BEST", 1)
    monkeypatch.setattr(accuracy, "NUM_TUNED", 1)
    record, cache = tmp_path / "record.json", tmp_path / "cache"
    arguments = ["--quick", "--output", str(record), "--cache", str(cache)]
    texts = [
        *(*arguments, "--tasks", "generated", "--seeds", "0,1"),
        *("--methods", "table,codes that follow,tensor train,search"),
    ]
    assert not accuracy.main([*texts, "--minutes", "0"])
    assert "generated, 1/4, search (0)" in capsys.readouterr().out
    rows = accuracy.main([*texts, "--picture", str(tmp_path)])
    assert "Left" not in capsys.readouterr().out
    assert (tmp_path / "rivals_generated.png").read_bytes()[:4] == b"\x89PNG"
    # The table and the best have two seeds, the second at the first's rate.
    again = [row for row in rows if len(row["runs"]) == 2]
    assert len(again) == 2 and again[0]["row"]["method"] == "table"
    for row in again:
        first, second = (run["figures"] for run in row["runs"])
        assert second["rate"] == first["rate"]
        assert len(first["tried"]) == 2 and len(second["tried"]) == 1
    visits = ["--tasks", "made up", "--methods", "table,pruned"]
    rows += accuracy.main([*arguments, *visits, "--rates", "0.01"])
    found = {row["name"]: row["runs"][0]["figures"] for row in rows}
    for task in ("generated", "made up"):
        table = found[f"{task}, table"]
        # Both schedules, from the same rates as all others.
        assert set(table["schedules"]) == {"float32, whole", "float32, halves"}
        for name, one in found.items():
            if name.startswith(f"{task}, 1/4"):
                assert one["bytes"] <= table["bytes"] // 4
                assert 0 < next(iter(one["test"].values())) <= 1
    assert len(found) == 6


def test_all_epochs_are_spent(tmp_path, monkeypatch):
    """Whatever is made has as many epochs as the table."""
    spent = {}

    def train(task, model, epochs, rate, seed, callbacks=()):
        spent.setdefault(rate, []).append(epochs)

    monkeypatch.setattr(Task, "train", train)
    arguments = ["--quick", "--tasks", "generated", "--rates", "0.003"]
    arguments += ["--cache", str(tmp_path)]
    epochs = QUICK[0].epochs
    for names, expected in (
        ("int4", [epochs // 2, epochs - epochs // 2]),
        ("quotient x remainder", [epochs]),
        # Half of them are in the cache.
        ("table", [epochs, epochs - epochs // 2]),
    ):
        spent.clear()
        accuracy.main([*arguments, "--methods", names])
        assert spent == {0.003: expected}


def test_climb():
    tried = []

    def climb(scores, first):
        tried.clear()

        def score_of(rate):
            tried.append(rate)
            return scores[rate]

        found = best_rows.climb(tuple(scores), first, score_of)
        return max(found, key=found.get)

    rates = (0.1, 1, 10, 100)
    assert climb(dict(zip(rates, (0, 1, 2, 3), strict=True)), 1) == 100
    assert tried == [1, 10, 100]
    assert climb(dict(zip(rates, (3, 2, 1, 9), strict=True)), 1.1) == 0.1
    assert tried == [1, 10, 0.1]
    assert climb(dict(zip(rates, (0, 1, 0, 9), strict=True)), 1) == 1
    assert tried == [1, 10, 0.1]


@pytest.mark.parametrize("name", list(methods.RIVALS))
def test_largest_that_fits(name):
    rival = methods.RIVALS[name]
    sizes = []
    for ratio in (4, 16, 64):
        limit = 4 * SHAPE[0] * SHAPE[1] // ratio
        method = rival.largest(SHAPE, COUNTS, limit)
        if method is None:
            continue
        size = method.litert_bytes(*SHAPE, methods.QUANTIZE)
        assert method.reason_against(*SHAPE) is None
        assert size <= limit
        sizes.append(size)
    assert sizes and sizes == sorted(sizes, reverse=True)


def test_largest_is_the_largest():
    sizes = methods.Sizes(lambda number: methods.methods.Codes(number, 16))
    # 2,000 codes of 2 bytes, and 4 codebooks in int8.
    needed = 2000 * 2 + 4 * 16 * 64
    assert sizes.fit(SHAPE, needed).num_codebooks == 4
    assert sizes.fit(SHAPE, needed - 1).num_codebooks < 4
    assert methods.Sizes(methods.methods.TensorTrain).fit(SHAPE, 10) is None


def test_rows():
    args = parse(accuracy.Accuracy, "rivals.accuracy", [])
    rows = accuracy.Accuracy(args, None).rows()
    assert len({row.name for row in rows}) == len(rows)
    # Flags have commas between names.
    assert not any("," in row.method for row in rows)
    assert [row.task for row in rows[: len(TASKS)]] == list(TASKS)
    assert all(row.method == "table" for row in rows[: len(TASKS)])
    assert {task.name for task in TASKS} == set(pages.RIVAL_TASKS)


def test_unknown_names():
    with pytest.raises(SystemExit, match="--tasks must be among.*: nowhere"):
        accuracy.main(["--quick", "--tasks", "nowhere"])
    with pytest.raises(SystemExit, match="--methods must be.*: magic, codes"):
        accuracy.main(["--quick", "--methods", "magic,codes"])


def test_level_and_worse():
    found = {
        "a": [80.0, 81, 82],
        "b": [79.5, 79.5, 79.5],
        "c": [78.0, 78.5, 79],
        "one seed": [99.0],
        "none fits": [],
    }
    (line,) = pages.level_and_worse(["task"], found)
    assert line == ["task", "a 81.0", "b 79.5", "c 78.5", "3"]
    (line,) = pages.level_and_worse([], {"a": [1.0], "b": [2.0]})
    assert line == ["b 2.0", "(not told; next: a 1.0)", "", "1"]
    (line,) = pages.level_and_worse([], {"a": [1.0, 1.5], "b": [2.0]})
    assert line == ["b 2.0", "(not told; next: a 1.0)", "", "1"]
    assert not pages.level_and_worse([], {"a": []})


def test_methods_of_a_picture_are_in_order():
    means = {
        "once": {16: 90.0},
        "worse": {16: 80.0, 64: 70.0, 128: 60.0},
        "too large for 128": {16: 89.0, 64: 73.0},
        "better": {16: 79.0, 64: 75.0, 128: 62.0},
    }
    assert pictures.best_first(means) == [
        "too large for 128",
        "better",
        "worse",
        "once",
    ]
