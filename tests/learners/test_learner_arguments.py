"""What every learner refuses, and tables of unusual size."""

import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.learners import quantizer_run
from keras_compembed.utils import validation

TABLE = np.random.default_rng(0).normal(size=(120, 6)) + 2
LEARNERS = [
    kc.learners.AdditiveQuantizer,
    kc.learners.RandomCodeLearner,
    kc.learners.KDCodeLearner,
    kc.learners.GumbelCodeLearner,
]


def make(cls, **kwargs):
    if cls is kc.learners.AdditiveQuantizer:
        kwargs = {"effort": 0.1, "verbose": 0} | kwargs
    elif cls is not kc.learners.RandomCodeLearner:
        kwargs = {
            "composition": "sum",
            "training": kc.learners.Training(2, validation_rows=50),
            "verbose": 0,
        } | kwargs
    return cls(4, 6, seed=0, **kwargs)


def relative_error(learner, table, codes):
    squares = np.square(learner.decode(codes) - table, dtype="float64")
    return squares.sum() / np.square(table - table.mean(axis=0)).sum()


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize(
    "seed", [-1, 0.0, 1.5, True, "0", np.float32(1), [1, 2]]
)
def test_bad_seeds(cls, seed):
    with pytest.raises(ValueError, match="`seed` must be.*Received: seed"):
        cls(4, 6, seed=seed)


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize("seed", [None, 0, 2**70, np.uint32(2**32 - 1)])
def test_good_seeds(cls, seed):
    assert cls(4, 6, seed=seed).seed == seed


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize(
    "table, message",
    [
        (1e18 * TABLE, "`table` must have numbers.*largest is [4-9].*e.18"),
        (1e-30 * TABLE, "`table` must have numbers.*largest is [4-9].*e-30"),
        # These are 0 in float32.
        (1e-60 * TABLE, "`table` must have numbers.*largest is [4-9].*e-60"),
        (np.full((9, 6), np.nan), "`table` must be finite"),
        (-np.full((9, 6), np.inf), "`table` must be finite"),
        (TABLE[0], "`table` must have two axes"),
        (TABLE.astype(str), "`table` must hold real numbers"),
        ([[1, 2], [3]], "`table` must be an array"),
    ],
    ids="1e18 1e-30 1e-60 nan inf vector strings ragged".split(),
)
def test_bad_tables(cls, table, message):
    learner = make(cls)
    with pytest.raises(ValueError, match=message):
        learner.train(table)
    assert learner.codebooks is None and learner.codes is None


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize(
    "weight",
    [[1.0], np.zeros(120), -np.ones(120), ["a"] * 120, 1j * np.ones(120)],
    ids="short zero negative strings complex".split(),
)
def test_bad_weights(cls, weight):
    learner = make(cls)
    with pytest.raises(ValueError, match="`sample_weight` must"):
        learner.train(TABLE, sample_weight=weight)
    assert learner.codebooks is None


@pytest.mark.parametrize("cls", LEARNERS[2:])
@pytest.mark.parametrize(
    "argument, value",
    [
        ("temperature", True),
        ("temperature", "1"),
        ("refine", "yes"),
        ("verbose", -1),
        ("composition", kc.compositions.LSTMComposition),
    ],
)
def test_bad_arguments(cls, argument, value):
    message = f"`{argument}` must be.*Received: {argument}"
    with pytest.raises(ValueError, match=message):
        cls(4, 6, **{argument: value})


@pytest.mark.parametrize("cls", LEARNERS[2:])
def test_bad_callbacks(cls):
    learner = make(cls)
    for bad in (print, [print]):
        with pytest.raises(ValueError, match="`callbacks` must be a list"):
            learner.train(TABLE, callbacks=bad)


def test_bad_verbose():
    with pytest.raises(ValueError, match="`verbose` must be one of 0, 1"):
        kc.learners.AdditiveQuantizer(4, 6, verbose=7)


@pytest.mark.parametrize("cls", LEARNERS[:3])
@pytest.mark.parametrize("warm", [False, True])
def test_tables_at_the_bounds(cls, warm, monkeypatch):
    monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1 if warm else 1e9)
    if warm and cls is not kc.learners.AdditiveQuantizer:
        return
    largest = np.abs(TABLE).max()
    errors = []
    bounds = 1.01 * validation._SMALLEST, 0.99 * validation._LARGEST
    for size in (1, *bounds):
        table = (size / largest * TABLE).astype("float32")
        table = table.astype("float64")
        learner = make(cls).train(table)
        errors.append(relative_error(learner, table, learner.codes))
        if cls is not kc.learners.RandomCodeLearner:
            # Found anew, some by a beam.
            again = relative_error(learner, table, learner.encode(table))
            assert again < 1.2 * errors[-1] + 0.05
        loss = [*learner.history.get("refined_loss", [])]
        loss = (loss or learner.history["loss"])[-1]
        energy = np.square(table - table.mean(axis=0)).sum() / len(table)
        assert errors[-1] <= loss / energy * 1.01
    assert errors[0] < 0.95
    # Draws at a temperature may fall otherwise where scores are rounded.
    np.testing.assert_allclose(errors, errors[0], rtol=0.15)


@pytest.mark.parametrize("cls", LEARNERS)
def test_one_row_outweighs_the_others(cls):
    table = TABLE.copy()
    table[3] *= 1e4
    # Warnings are errors in tests: nothing is learned.
    with pytest.raises(UserWarning, match="half of its rows"):
        make(cls).train(table)


@pytest.mark.parametrize("cls", LEARNERS)
def test_zeros_are_a_table(cls):
    learner = make(cls).train(np.zeros((20, 6)))
    # As published, the first codebooks are not those of the table.
    close = 1 if cls is kc.learners.GumbelCodeLearner else 1e-12
    np.testing.assert_allclose(learner.decode(learner.codes), 0, atol=close)
