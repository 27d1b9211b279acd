"""The search for settings, on plain arrays and made-up files."""

import itertools

import numpy as np
import pytest

from keras_compembed.compression.size_search import allocate
from keras_compembed.compression.size_search import lower_hull


def total(curves, places, part):
    return sum(
        curve[part][place] for curve, place in zip(curves, places, strict=True)
    )


@pytest.mark.parametrize("tables", [1, 3])
def test_bytes_go_where_they_gain_most(tables):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        curves = []
        for _ in range(tables):
            sizes = rng.integers(1, 100, size=6)
            losses = np.exp(-sizes / 40) * rng.uniform(0.5, 1.5, size=6)
            curves.append((sizes, losses))
        limit = rng.integers(20, 250)
        found = allocate(curves, limit)
        fits = [
            places
            for places in itertools.product(range(6), repeat=tables)
            if total(curves, places, 0) <= limit
        ]
        if not fits:
            assert found is None
            continue
        assert tuple(found) in fits
        best = min(total(curves, places, 1) for places in fits)
        # Within a step of a curve of the best, that of one table.
        steps = [
            -np.diff(y[lower_hull(x, y)]).min(initial=0) for x, y in curves
        ]
        most = best + (max(steps) if tables > 1 else 1e-9)
        assert total(curves, found, 1) <= most
