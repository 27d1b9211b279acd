import keras
import numpy as np
import pytest
import threadpoolctl

import keras_compembed as kc
from keras_compembed.learners import factor_quantizer
from keras_compembed.learners.factor_quantizer import FactorQuantizer

RNG = np.random.default_rng(0)
# Four axes, of which the last matters little, about a mean far from zero.
TABLE = (RNG.normal(size=(300, 4)) * [4, 3, 2, 0.1]) @ RNG.normal(
    size=(4, 10)
) + 3


def learner(rank=4, **kwargs):
    options = {"effort": 0.3, "seed": 0, "verbose": 0, **kwargs}
    return FactorQuantizer(6, 8, rank, **options)


def loss(learner, weight=None):
    squares = ((learner.decode(learner.codes) - TABLE) ** 2).sum(axis=1)
    return np.average(squares, weights=weight)


def test_axes_are_those_of_the_singular_value_decomposition():
    weight = RNG.uniform(0.1, 2, size=300).astype("float32")
    found = factor_quantizer._largest_axes(TABLE, weight)[:3]
    rows = TABLE * np.sqrt(weight)[:, None]
    axes = np.linalg.svd(rows, full_matrices=False)[2][:3]
    # Axes have no sign.
    np.testing.assert_allclose(found.T @ found, axes.T @ axes, atol=1e-5)


def test_rows_come_near_those_of_full_width():
    narrow = learner().train(TABLE)
    wide = kc.learners.AdditiveQuantizer(6, 8, effort=0.3, seed=0, verbose=0)
    wide.train(TABLE)
    assert narrow.codebooks.shape == (6, 8, 4)
    assert loss(narrow) < 1.2 * loss(wide)
    assert loss(learner(2).train(TABLE)) > 2 * loss(narrow)
    # Of the codes before the last fit.
    assert loss(narrow) <= narrow.history["refined_loss"][-1]


def test_rows_that_count_more_come_nearer():
    weight = np.ones(300)
    weight[:30] = 100
    plain, weighted = learner(2), learner(2)
    plain.train(TABLE)
    weighted.train(TABLE, sample_weight=weight)
    assert loss(weighted, weight) < 0.95 * loss(plain, weight)


def test_same_seed_same_codes_and_new_rows():
    one, other = learner().train(TABLE), learner().train(TABLE)
    np.testing.assert_array_equal(one.codes, other.codes)
    codes = one.encode(TABLE[:50])
    squares = ((one.decode(codes) - TABLE[:50]) ** 2).sum(axis=1)
    assert squares.mean() < 1.5 * loss(one)


def test_layer_has_the_learned_matrix():
    fitted = learner().train(TABLE)
    layer = kc.CodeEmbedding.from_table(TABLE, 6, 8, learner=learner())
    rows = keras.ops.convert_to_numpy(layer.embeddings)
    np.testing.assert_allclose(
        rows, fitted.decode(fitted.codes), atol=1e-4 * np.abs(TABLE).max()
    )


def test_products_keep_to_one_thread(monkeypatch):
    threads = []

    def refine(*arguments):
        pools = threadpoolctl.ThreadpoolController().select(user_api="blas")
        threads.extend(pool["num_threads"] for pool in pools.info())
        return iter(())

    monkeypatch.setattr(factor_quantizer, "refine_composed", refine)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        learner().train(TABLE)
    assert set(threads) == {1}


def test_arguments():
    with pytest.raises(ValueError, match="`rank` must be a positive integer"):
        learner(0)
    with pytest.raises(ValueError, match="at most the number of columns"):
        learner(11).train(TABLE)
    with pytest.raises(ValueError, match="call `train` first"):
        learner().encode(TABLE)


def test_interrupt_keeps_what_was_fitted(monkeypatch, capsys):
    refine = factor_quantizer.refine_composed

    def interrupted(*args):
        yield next(refine(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(factor_quantizer, "refine_composed", interrupted)
    stopped = learner().train(TABLE)
    assert "the last whole sweep is kept" in capsys.readouterr().out
    assert len(stopped.history["refined_loss"]) == 1
    assert loss(stopped) <= stopped.history["refined_loss"][0]
