"""The search for settings, on plain arrays and made-up files."""

import itertools

import numpy as np
import pytest

from keras_compembed.compression.size_search import SizeSearch
from keras_compembed.compression.size_search import StopRequest
from keras_compembed.compression.size_search import TablePoints
from keras_compembed.compression.size_search import allocate
from keras_compembed.compression.size_search import lower_hull
from keras_compembed.methods import Codes
from keras_compembed.methods import Quantized
from keras_compembed.methods.settings import Spectrum
from keras_compembed.methods.settings import settings_by_default
from keras_compembed.methods.settings import settings_of

RNG = np.random.default_rng(0)
TABLE = (
    RNG.normal(size=(2000, 8))
    * 2.0 ** -np.arange(8)
    @ np.linalg.qr(RNG.normal(size=(8, 8)))[0]
)


def total(curves, places, part):
    return sum(
        curve[part][place] for curve, place in zip(curves, places, strict=True)
    )


def test_hull_of_a_curve():
    sizes = np.array([10, 20, 30, 40, 50, 20, 60])
    losses = np.array([1.0, 0.9, 0.2, 0.17, 0.1, 0.65, 0.1])
    # (20, .65) is above the line from (10, 1) to (30, .2).
    assert lower_hull(sizes, losses) == [0, 2, 4]


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


def test_losses_foretold_are_near_to_those_of_fits():
    weight = RNG.uniform(0.2, 3, size=2000)
    mean = np.average(TABLE, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    values = np.linalg.svd((TABLE - mean) * root, compute_uv=False) ** 2
    expected = values[3:].sum() / values.sum()
    assert Spectrum(TABLE, weight).cut(3) == pytest.approx(expected, rel=1e-4)
    assert Spectrum(np.ones((10, 3))).coded(1, 1) < 1e-6
    settings = settings_by_default(TABLE)
    names = "codes 2x8", "codes 2x8 rank 4", "int2", "int4 rank 5"
    chosen = [x for x in settings if x.method.name in names]
    points = TablePoints([TABLE], chosen, lambda method, width: 1)
    for place, setting in enumerate(chosen):
        assert 0.4 < setting.estimate / points.measure(place) < 2.5


def test_files_correct_what_is_foretold():
    methods = [Codes(1, 8), Quantized(2), Quantized(4), Quantized(8)]
    more = {"codes 1x8": 5000, "int2": 900, "int4": 1000, "int8": 1000}
    shape = TABLE.shape

    def bytes_of(method, width=None):
        return method.litert_bytes(*shape, "int8")

    def count(choices):
        method = methods[choices[0]]
        return 777 + bytes_of(method) + more[method.name], None

    points = TablePoints([TABLE], settings_of(methods), bytes_of)
    search = SizeSearch([points], count, StopRequest(), print)
    # Its own file is larger than another's.
    assert search.smallest == (0,)
    least = count((1,))[0]
    assert search.count_smallest(100) == least and search.smallest == (1,)
    search.look(count((2,))[0])
    assert search.ranked(count((2,))[0])[:2] == [(2,), (1,)]
    search.look(count((2,))[0] - 1)
    assert search.ranked(count((2,))[0] - 1)[0] == (1,)
    chosen = [x for x in search.points((2,), {}) if x.is_chosen]
    assert [(x.name, x.file_bytes) for x in chosen] == [
        ("int4", count((2,))[0])
    ]
