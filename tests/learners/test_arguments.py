"""What learners refuse, tables at the bounds, and settings of training."""

import numpy as np
import pytest
from errors import refused

from keras_compembed.learners import AdditiveQuantizer
from keras_compembed.learners import GumbelCodeLearner
from keras_compembed.learners import KDCodeLearner
from keras_compembed.learners import Training
from keras_compembed.learners.additive_quantizer import FactorQuantizer
from keras_compembed.learners.training import TemperatureSchedule

TABLE = np.random.default_rng(0).normal(size=(120, 6)) + 2
GRADIENTS = [KDCodeLearner, GumbelCodeLearner]
# Two of very different kinds.
BOTH = pytest.mark.parametrize("cls", [AdditiveQuantizer, KDCodeLearner])
MANY_ROWS = 10_000


def make(cls):
    if cls is AdditiveQuantizer:
        return cls(4, 6, effort=0.1, seed=0, verbose=0)
    training = Training(2, validation_rows=50)
    return cls(4, 6, "sum", training=training, seed=0, verbose=0)


def relative_error(learner, table, codes):
    squares = np.square(learner.decode(codes) - table, dtype="float64")
    return squares.sum() / np.square(table - table.mean(axis=0)).sum()


@BOTH
def test_bad_tables_and_weights(cls):
    learner = make(cls)
    for use in (learner.encode, learner.decode):
        with pytest.raises(ValueError, match="`train`"):
            use(np.zeros((3, 4), "uint8"))
    for table, received in (
        (1e18 * TABLE, "e+18"),
        # These are 0 in float32.
        (1e-60 * TABLE, "e-60"),
        (np.where(np.arange(120) == 7, np.nan, TABLE.T).T, "row 7"),
        (np.full((9, 6), 1e300), "row 0"),
        (TABLE[0], "(6,)"),
        (np.zeros((0, 4)), "(0, 4)"),
        (TABLE.astype(str), "<U"),
        ([[1, 2], [3]], "list"),
    ):
        with refused("table", received):
            learner.train(table)
    for weight, received in (
        ([1.0], "(1,)"),
        (np.zeros(120), "zeros"),
        (-np.ones(120), "-1"),
        (np.full(120, np.nan), "nan"),
    ):
        with refused("sample_weight", received):
            learner.train(TABLE, sample_weight=weight)
    assert learner.codebooks is None and learner.codes is None
    learner.train(TABLE)
    with refused("table", "(2, 5)"):
        learner.encode(np.zeros((2, 5)))
    with refused("table", "row 1"):
        learner.encode(np.repeat([[0.0], [np.inf]], 6, axis=1))


@pytest.mark.parametrize(
    "cls, name, value",
    [
        (AdditiveQuantizer, "num_codebooks", 0),
        (AdditiveQuantizer, "codebook_size", 65537),
        (AdditiveQuantizer, "seed", -1),
        (AdditiveQuantizer, "effort", 0),
        (AdditiveQuantizer, "verbose", 7),
        (FactorQuantizer, "rank", 0),
        (KDCodeLearner, "codebook_size", 1),
        (KDCodeLearner, "seed", True),
        (KDCodeLearner, "temperature", 0.0),
        (KDCodeLearner, "composition", "maximum"),
        (GumbelCodeLearner, "refine", "yes"),
        (GumbelCodeLearner, "training", Training),
        (KDCodeLearner, "logits", "table"),
        (KDCodeLearner, "estimator", "gumbel"),
        (TemperatureSchedule, "base", float("nan")),
        (TemperatureSchedule, "rate", 0),
        (Training, "iterations", 0),
        (Training, "learning_rate", -1e-4),
        (Training, "validation_rows", -1),
    ],
)
def test_bad_arguments(cls, name, value):
    with refused(name, value):
        cls(**{name: value})


def test_what_does_not_go_together():
    with refused("floor", 0.4):
        TemperatureSchedule(base=0.4)
    with refused("rank", 7):
        FactorQuantizer(4, 6, rank=7, verbose=0).train(TABLE)
    for cls in GRADIENTS:
        with refused("refine", True):
            cls(composition="lstm", refine=True)
        learner = make(cls)
        learner.build(TABLE.shape)
        for method in (learner.train, learner.encode):
            with refused("table", (120, 3)):
                method(TABLE[:, :3])
        with refused("codes", 6):
            learner.decode(np.full((1, 4), 6))
    with refused("num_codebooks", 3):
        KDCodeLearner(4, 6, "concat").train(TABLE[:, :3])


@pytest.mark.parametrize(
    "cls, rows",
    [
        (AdditiveQuantizer, 120),
        (AdditiveQuantizer, MANY_ROWS),
        (KDCodeLearner, 120),
    ],
)
def test_tables_at_the_bounds(cls, rows):
    own = np.random.default_rng(0).normal(size=(rows, 6)) + 2
    largest = np.abs(own).max()
    errors = []
    for size in (1, 1.01e-12, 0.99e12):
        table = (size / largest * own).astype("float32").astype("float64")
        learner = make(cls).train(table)
        errors.append(relative_error(learner, table, learner.codes))
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


@BOTH
def test_one_row_outweighs_the_others(cls):
    table = np.ones((20, 6))
    # Rows without numbers are not counted for short.
    table[10:] = 0
    table[3] = -1001
    # Warnings are errors in tests: nothing is learned.
    with pytest.raises(UserWarning, match=r"1001.*none above 1\b"):
        make(cls).train(table)
    table[3] = -999
    make(cls).train(table)
    learner = make(cls).train(np.zeros((20, 6)))
    np.testing.assert_allclose(learner.decode(learner.codes), 0, atol=1e-12)
