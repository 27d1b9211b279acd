"""Parts of benchmarks of tables, by references on plain arrays."""

import numpy as np
import pytest
from benchmark_files import load

from benchmarks.common import best_rows
from benchmarks.data import visits

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
