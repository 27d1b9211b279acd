import itertools

import numpy as np
import pytest

from keras_compembed.compression.allocation import allocate
from keras_compembed.compression.allocation import lower_hull


def random_curve(rng, points):
    sizes = rng.integers(1, 100, size=points)
    return sizes, np.exp(-sizes / 40) * rng.uniform(0.5, 1.5, size=points)


def total(curves, places, part):
    return sum(
        curve[part][place] for curve, place in zip(curves, places, strict=True)
    )


def best_choice(curves, limit):
    """Of all choices that fit, that of the lowest loss."""
    ranges = [range(len(sizes)) for sizes, _ in curves]
    return min(
        (
            places
            for places in itertools.product(*ranges)
            if total(curves, places, 0) <= limit
        ),
        key=lambda places: total(curves, places, 1),
        default=None,
    )


def test_hull_of_a_curve():
    sizes = np.array([10, 20, 30, 40, 50, 20, 60])
    losses = np.array([1.0, 0.9, 0.2, 0.17, 0.1, 0.65, 0.1])
    # (20, .65) is above the line from (10, 1) to (30, .2).
    assert lower_hull(sizes, losses) == [0, 2, 4]
    assert lower_hull(np.array([5]), np.array([1.0])) == [0]


@pytest.mark.parametrize("seed", range(40))
def test_choice_is_within_a_step_of_the_best(seed):
    rng = np.random.default_rng(seed)
    curves = [random_curve(rng, 6) for _ in range(3)]
    limit = rng.integers(20, 250)
    places, best = allocate(curves, limit), best_choice(curves, limit)
    if best is None:
        assert places is None
        return
    assert total(curves, places, 0) <= limit
    gains = [
        -np.diff(losses[lower_hull(sizes, losses)]).min(initial=0)
        for sizes, losses in curves
    ]
    assert total(curves, places, 1) <= total(curves, best, 1) + max(gains)


@pytest.mark.parametrize("seed", range(10))
def test_one_table_gets_the_best_that_fits(seed):
    rng = np.random.default_rng(seed)
    curve = random_curve(rng, 20)
    limit = int(np.median(curve[0]))
    assert allocate([curve], limit) == list(best_choice([curve], limit))


def test_bytes_go_where_they_gain_most():
    steep = np.array([10, 20, 30]), np.array([10.0, 5.0, 1.0])
    flat = np.array([10, 20, 30]), np.array([2.0, 1.9, 1.8])
    assert allocate([steep, flat], 40) == [2, 0]
    assert allocate([steep, flat], 59) == [2, 1]
    assert allocate([steep, flat], 1000) == [2, 2]
    # As many bytes as there are may be taken.
    assert allocate([steep, flat], 60) == [2, 2]
    assert allocate([steep, flat], 20) == [0, 0]
    assert allocate([steep, flat], 19) is None
    assert allocate([], 0) == []
