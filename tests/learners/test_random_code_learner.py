import numpy as np
import pytest

from keras_compembed import CodeEmbedding
from keras_compembed.learners import CodeLearner
from keras_compembed.learners import RandomCodeLearner


def small_table(rows=200, width=6):
    return np.random.default_rng(0).normal(size=(rows, width)) + 3


@pytest.mark.parametrize("weighted", [False, True])
def test_codebooks_are_those_of_least_squares(weighted):
    table = small_table()
    weight = np.random.default_rng(1).uniform(0.5, 2, size=len(table))
    learner = RandomCodeLearner(3, 4, seed=0)
    learner.train(table, sample_weight=weight if weighted else None)
    one_hot = np.eye(4)[learner.codes].reshape(len(table), 12)
    root = np.sqrt(weight)[:, None] if weighted else 1.0
    solution = np.linalg.lstsq(root * one_hot, root * table, rcond=None)[0]
    fitted = one_hot @ solution
    # A ridge of 0.01 against about 50 rows a codeword.
    np.testing.assert_allclose(learner.decode(learner.codes), fitted, atol=3e-3)
    squares = np.square(table - learner.decode(learner.codes)).sum(axis=1)
    loss = np.average(squares, weights=weight if weighted else None)
    assert learner.history["loss"] == [pytest.approx(loss, rel=1e-5)]


def test_codes_are_random_and_repeatable():
    table = small_table(4000)
    learner = RandomCodeLearner(3, 4, seed=0).train(table)
    assert isinstance(learner, CodeLearner)
    assert learner.codes.dtype == np.uint8
    shares = [np.bincount(subcodes) / 4000 for subcodes in learner.codes.T]
    # Binomial: standard deviation 0.007.
    np.testing.assert_allclose(shares, 0.25, atol=0.03)
    again = RandomCodeLearner(3, 4, seed=0).train(table)
    other = RandomCodeLearner(3, 4, seed=1).train(table)
    np.testing.assert_array_equal(learner.codes, again.codes)
    assert not np.array_equal(learner.codes, other.codes)
    more = learner.encode(table)
    assert more.shape == learner.codes.shape
    assert not np.array_equal(more, learner.codes)
    np.testing.assert_array_equal(more, again.encode(table))


def test_layer_from_random_codes():
    table = small_table()
    learner = RandomCodeLearner(3, 4, seed=0)
    layer = CodeEmbedding.from_table(table, 3, 4, learner=learner)
    np.testing.assert_allclose(
        layer.embeddings, learner.decode(learner.codes), atol=1e-6
    )


def test_bad_input():
    with pytest.raises(ValueError, match="`codebook_size` must be"):
        RandomCodeLearner(codebook_size=1)
    learner = RandomCodeLearner(3, 4)
    with pytest.raises(ValueError, match="call `train` first"):
        learner.encode(small_table())
    with pytest.raises(ValueError, match="two axes"):
        learner.train(np.zeros(3))
    with pytest.raises(ValueError, match="`sample_weight` must hold one"):
        learner.train(small_table(), sample_weight=[1.0])
    learner.train(small_table())
    with pytest.raises(ValueError, match="`table` must have 6 columns"):
        learner.encode(np.zeros((2, 5)))
