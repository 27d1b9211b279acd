import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression.method_choices import Spectrum

RNG = np.random.default_rng(0)
SCALES = 2.0 ** -np.arange(8)
TABLE = (
    RNG.normal(size=(2000, 8))
    * SCALES
    @ np.linalg.qr(RNG.normal(size=(8, 8)))[0]
)
WEIGHT = RNG.uniform(0.2, 3, size=2000)


def weighted_error(rows, weight):
    mean = np.average(TABLE, axis=0, weights=weight)
    lost = np.average(((rows - TABLE) ** 2).sum(axis=1), weights=weight)
    there = np.average(((TABLE - mean) ** 2).sum(axis=1), weights=weight)
    return lost / there


def test_cut_is_that_of_the_singular_value_decomposition():
    mean = np.average(TABLE, axis=0, weights=WEIGHT)
    root = np.sqrt(WEIGHT)[:, None]
    axes = np.linalg.svd((TABLE - mean) * root, full_matrices=False)[2][:3]
    rows = mean + (TABLE - mean) @ axes.T @ axes
    found = Spectrum(TABLE, WEIGHT).cut(3)
    np.testing.assert_allclose(found, weighted_error(rows, WEIGHT), rtol=1e-4)
    assert Spectrum(TABLE + 5).cut(0) == pytest.approx(1)


def test_rows_that_count():
    assert Spectrum(TABLE).num_rows == 2000
    weight = np.zeros(2000)
    weight[:50] = 3
    assert Spectrum(TABLE, weight).num_rows == pytest.approx(50)


def test_loss_of_codes_is_that_of_reverse_water_filling():
    # Two axes of variance 1/2 at 4 bits in all: 2 bits each, so 1/16 is lost.
    table = RNG.normal(size=(100_000, 2))
    spectrum = Spectrum(table)
    assert spectrum.coded(4, 0) == pytest.approx(2**-4, rel=0.01)
    assert spectrum.coded(4, 0, rank=1) == pytest.approx(0.5, abs=0.01)
    assert spectrum.coded(0, 0) == pytest.approx(1)
    # Codebooks of half the rows know half of them.
    assert spectrum.coded(4, 50_000) == pytest.approx(2**-5, rel=0.01)


def test_a_table_of_equal_rows_loses_nothing():
    spectrum = Spectrum(np.ones((10, 3)))
    assert spectrum.cut(0) < 1e-6 and spectrum.coded(1, 1) < 1e-6


@pytest.mark.parametrize("rank", [None, 4])
def test_loss_is_near_to_that_of_codes(rank):
    layer = kc.methods.Codes(2, 8, rank=rank).start(0).from_table(TABLE)
    error = weighted_error(np.asarray(layer.embeddings), None)
    assert 0.4 < Spectrum(TABLE).coded(6, 16, rank) / error < 2.5
