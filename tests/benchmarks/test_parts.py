"""Parts of benchmarks of tables, by references on plain arrays."""

import numpy as np
import pytest
from benchmark_files import load

import keras_compembed as kc
from benchmarks.common import best_rows
from benchmarks.common import litert
from benchmarks.data import visits
from benchmarks.litert import lookups

learning = load("codes.learning")


def test_rank(monkeypatch):
    monkeypatch.setattr(visits, "TOP", 2)
    # User 0 is offered items 1 and 2, user 2 items 3 and 2.
    recall, ndcg = visits.rank(
        np.array([[1, 0], [0, 0], [0, 1]], "float32"),
        np.array([[4, 1], [3, 2], [2, 3], [1, 4]], "float32"),
        np.array([2, 0]),
        seen=np.array([[0, 0]]),
        relevant=np.array([[0, 2], [2, 3], [2, 0], [2, 1]]),
    )
    discount = 1 / np.log2(3)
    assert recall == pytest.approx((1 + 1 / 3) / 2)
    assert ndcg == pytest.approx((discount + 1 / (1 + discount)) / 2)


@pytest.mark.parametrize("name", [*lookups.TABLES, *lookups.ROUNDED])
def test_files_hold_the_table(name, tmp_path):
    pytest.importorskip("ai_edge_litert")
    size, width = 2 * lookups.DIFFERENT_ROWS + 5, 32
    row = lookups.Row(name, size, pooled=False)
    path = lookups.write(row, tmp_path / "table.tflite", width, 0)
    ids = np.array([[0, 1, 4098, 4099, 4100, size - 1]], "int32")
    file = litert.File(path, {None: ids.shape})
    file.run(ids)
    (rows,) = file.outputs().values()
    table = lookups.random_rows(width, 0)
    wanted, atol = table[ids % lookups.DIFFERENT_ROWS], 0
    np.testing.assert_array_equal(rows[0, 0], rows[0, 3])
    if name in lookups.ROUNDED:
        bits, rank = lookups.ROUNDED[name]
        layer = kc.QuantizedEmbedding.from_table(
            table, bits, rank=rank, seed=0, verbose=0
        )
        wanted, atol = layer(ids % lookups.DIFFERENT_ROWS), 1e-6
    elif lookups.TABLES[name] == "float16":
        wanted = wanted.astype("float16")
    elif lookups.TABLES[name] == "int8":
        # One scale for the table.
        atol = np.abs(table).max() / 254
    np.testing.assert_allclose(rows, wanted, rtol=0, atol=atol)


def test_climb():
    for scores, first, best, expected in (
        ((0, 1, 2, 3), 1, 100, [1, 10, 100]),
        ((3, 2, 1, 9), 1.1, 0.1, [1, 10, 0.1]),
        ((0, 1, 0, 9), 1, 1, [1, 10, 0.1]),
    ):
        tried = []
        of_rate = dict(zip((0.1, 1, 10, 100), scores, strict=True))

        def score_of(rate, of_rate=of_rate, tried=tried):
            tried.append(rate)
            return of_rate[rate]

        found = best_rows.climb(tuple(of_rate), first, score_of)
        assert max(found, key=found.get) == best and tried == expected
