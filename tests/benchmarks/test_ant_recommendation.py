"""The recommendation benchmark runs in its quick mode, on made-up visits."""

import json
import lzma
import types

import numpy as np
import pytest
from benchmark_files import load


@pytest.fixture
def benchmark():
    return load("ant_recommendation")


def test_rows(benchmark, tmp_path, capsys):
    output = tmp_path / "results.json"
    arguments = ["--quick", "--output", str(output)]
    arguments += ["--cache", str(tmp_path)]
    rows = "^tables|fitted|nearest|l1"
    lines = benchmark.main([*arguments, "--rows", rows])
    assert json.loads(output.read_text())["rows"] == lines
    tables, fitted, nearest, shrunk = lines
    assert tables["parameters"] == (150 + 100) * 8
    assert tables["times_smaller"] == 1
    for line in lines:
        # 20 of 100 places at random are 0.2 of them.
        assert line["recall"] > 0.5
        assert 0 < line["ndcg"] <= 1
        assert len(line["by_epoch"]) == 4
    for line in (fitted, nearest):
        # Ten anchors of width 8 on each side, two numbers a row.
        assert 160 < line["parameters"] <= 160 + 2 * 250
    numbers = [size for _, size in shrunk["by_epoch"]]
    assert shrunk["parameters"] == numbers[-1] < numbers[0]
    # Nothing of it runs again.
    assert benchmark.main([*arguments, "--rows", rows]) == lines
    assert "| tables | 2,000 | 1.0 | " in capsys.readouterr().out


def test_rank(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "TOP", 2)
    # User 0 is offered items 1 and 2, user 2 items 3 and 2.
    users = np.array([[1, 0], [0, 0], [0, 1]], "float32")
    items = np.array([[4, 1], [3, 2], [2, 3], [1, 4]], "float32")
    recall, ndcg = benchmark.rank(
        users,
        items,
        np.array([2, 0]),
        seen=np.array([[0, 0]]),
        relevant=np.array([[0, 2], [2, 3], [2, 0], [2, 1]]),
    )
    discount = 1 / np.log2(3)
    assert recall == pytest.approx((1 + 1 / 3) / 2)
    assert ndcg == pytest.approx((discount + 1 / (1 + discount)) / 2)


def test_visits_relate_what_is_shared(benchmark):
    train = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [2, 1]])
    pairs = types.SimpleNamespace(train=train)
    args = types.SimpleNamespace(seed=0)
    # Of two users each; users 0 and 1 share two places.
    items = benchmark.visits(pairs, 1, 3, args)
    users = benchmark.visits(pairs, 0, 3, args)
    assert items.pairs.tolist() == [[0, 1]]
    assert users.pairs.tolist() == [[0, 1]]


def test_nearest_have_the_same_visits(benchmark):
    args = types.SimpleNamespace(seed=0, num_anchors=20)
    pairs = benchmark.make_pairs(args)
    relations = benchmark.nearest(pairs, 1, pairs.num_items, args)
    anchors = np.argsort(-np.bincount(pairs.train[:, 1]), kind="stable")[:20]
    assert np.isin(relations.pairs, anchors).any(axis=1).all()
    alike = relations.pairs[:, 0] % 5 == relations.pairs[:, 1] % 5
    # A fifth of the pairs by chance.
    assert alike.mean() > 0.5


def test_files_are_read_by_user(benchmark, tmp_path):
    folder = tmp_path / "gowalla"
    folder.mkdir()
    for name, text in (
        ("train", "0 4 1 3 2\n1 0\n2 0 1 2 3 5\n"),
        ("test", "0 0 6\n1\n"),
    ):
        with lzma.open(folder / f"{name}.txt.xz", "wt") as file:
            file.write(text)
    pairs = benchmark.read_pairs(types.SimpleNamespace(data=tmp_path))
    assert (pairs.num_users, pairs.num_items) == (3, 7)
    assert pairs.test.tolist() == [[0, 0], [0, 6]]
    together = np.concatenate([pairs.train, pairs.valid]).tolist()
    assert len(pairs.valid) == 1 and len(together) == 10
    assert [2, 5] in together and [0, 4] in together


def test_data_must_be_named(benchmark, monkeypatch):
    monkeypatch.setenv("COMPEMBED_DATA", "")
    with pytest.raises(SystemExit, match="--data"):
        benchmark.main([])
