import numpy as np
import pytest

from keras_compembed.compression.method_choices import choices_by_default
from keras_compembed.compression.method_choices import choices_of
from keras_compembed.compression.spectrum import Spectrum
from keras_compembed.methods import Codes
from keras_compembed.methods import Rounded

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


@pytest.mark.parametrize(
    "name", ["int8", "int4", "int2", "int4 rank 3", "codes 2x8"]
)
def test_estimates_are_near_to_errors(name):
    choices = choices_by_default(2000, 8, Spectrum(TABLE))
    (choice,) = (x for x in choices if x.name == name)
    layer = choice.method.start(seed=0).from_table(TABLE)
    error = weighted_error(np.asarray(layer.embeddings), None)
    assert 0.4 < choice.estimate / error < 2.5


def test_choices_are_many_and_feasible():
    choices = choices_by_default(300, 16, Spectrum(RNG.normal(size=(300, 16))))
    names = [choice.name for choice in choices]
    assert len(set(names)) == len(names) > 500
    for choice in choices:
        assert choice.method.reason_against(300, 16) is None
        assert choice.method.litert_bytes(300, 16, "int8") > 0
    kinds = {choice.kind for choice in choices}
    assert {"int8", "int4", "int2", "int4 rank", "anchors"} <= kinds


def test_given_methods_are_not_estimated():
    choices = choices_of([Codes(2, 8), Rounded(4)])
    assert [choice.estimate for choice in choices] == [None, None]
    assert len({choice.kind for choice in choices}) == 2
