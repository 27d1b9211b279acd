"""Tables as narrow rounded rows times a matrix."""

import numpy as np
import pytest

from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.rounding.rounded_table import principal_directions
from keras_compembed.rounding.rounded_table import rank_of_energy
from keras_compembed.rounding.rounded_table import round_factors
from keras_compembed.rounding.rounded_table import round_onto
from keras_compembed.rounding.rounded_table import round_rows

RNG = np.random.default_rng(0)
# Energies that fall, about a mean row.
TABLE = RNG.normal(size=(200, 20)) @ np.diag(0.8 ** np.arange(20)) + 0.3
WEIGHT = RNG.uniform(0.1, 3, size=200).astype("float32")


def decode(factors):
    rounded, _, projection = factors
    return rounded.decode() @ projection


def weighted_error(factors, weight=WEIGHT):
    return np.sum(weight[:, None] * (TABLE - decode(factors)) ** 2)


@pytest.mark.parametrize("bits, block_size", [(4, None), (2, 3)])
def test_sweeps_lower_the_error(bits, block_size, monkeypatch):
    errors = []
    for sweeps in range(4):
        monkeypatch.setitem(round_factors.__globals__["_SWEEPS"], bits, sweeps)
        factors = round_factors(
            TABLE, 8, bits, block_size, sample_weight=WEIGHT, seed=0
        )
        errors.append(weighted_error(factors))
    assert np.all(np.diff(errors) <= 1e-5 * errors[0])
    assert errors[-1] < (0.95 if bits == 2 else 0.999) * errors[0]


def test_best_rank_where_rounding_costs_nothing():
    factors = round_factors(TABLE, 8, 8, sample_weight=WEIGHT, seed=0)
    rooted = np.sqrt(WEIGHT)[:, None]
    singular = np.linalg.svd(rooted * TABLE, compute_uv=False)
    least = np.sum(singular[8:] ** 2)
    assert least < weighted_error(factors) < 1.01 * least
    # Where all rows count alike, those that count more here are worse.
    alike = round_factors(TABLE, 8, 8, seed=0)
    assert weighted_error(alike) > weighted_error(factors)
    # What rows were rounded from gives the same rank.
    _, latents, projection = factors
    rows = latents @ projection
    assert np.sum(WEIGHT[:, None] * (TABLE - rows) ** 2) < 1.001 * least


def test_rank_of_energy():
    energies = np.linalg.svd(TABLE, compute_uv=False) ** 2
    shares = np.cumsum(energies) / np.sum(energies)
    for share in (0.5, 0.9, 0.99):
        rank = rank_of_energy(TABLE, share)
        assert shares[rank - 1] >= share > (shares[rank - 2] if rank > 1 else 0)
    assert rank_of_energy(np.eye(4), 0.5) == 2
    _, found = principal_directions(TABLE)
    np.testing.assert_allclose(found, energies, rtol=1e-5, atol=1e-3)


def search_row(target, gram, integers, scales, size, unit, bits):
    """One row, number by number, by errors of all integers."""

    def error(row):
        return row @ gram @ row - 2 * row @ target

    def row():
        return integers * np.repeat(scales, size)[: len(target)] * unit

    lowest, highest = integer_range(bits)
    for column in range(len(target)):
        found = []
        for integer in range(lowest, highest + 1):
            integers[column] = integer
            found.append(error(row()))
        integers[column] = lowest + np.argmin(found)
    for block in range(len(scales)):
        found = []
        for scale in range(128):
            scales[block] = scale
            found.append(error(row()))
        scales[block] = np.argmin(found)
    return integers, scales


@pytest.mark.parametrize("bits", [4, 2])
def test_search_equals_the_reference(bits):
    rng = np.random.default_rng(0)
    projection = rng.normal(size=(7, 12)).astype("float32")
    gram = projection.astype("float64") @ projection.T
    rows = rng.normal(size=(15, 7))
    start = round_rows(rows, bits, block_size=3, mean_row=0)
    found, _ = round_onto(
        rows @ projection,
        projection,
        bits,
        3,
        "int8",
        start.unit,
        0,
    )
    for place, target in enumerate(rows @ gram):
        integers = start.integers[place].astype("float64")
        scales = start.scales[place].astype("float64")
        # So many sweeps as it takes to change nothing, or fewer.
        reached = []
        for _ in range(4):
            integers, scales = search_row(
                target, gram, integers, scales, 3, np.float64(start.unit), bits
            )
            # A block of zeros has the same error whatever its scale.
            used = np.array([integers[b : b + 3].any() for b in (0, 3, 6)])
            reached.append(
                np.array_equal(found.integers[place], integers)
                and np.array_equal(found.scales[place][used], scales[used])
            )
        assert any(reached), place
