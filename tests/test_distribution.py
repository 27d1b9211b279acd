"""Two devices learn what one learns."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed import CodeEmbedding
from keras_compembed import GumbelCodeLearner
from keras_compembed import KDCodeLearner

BATCH_SIZE = 16


class NoiselessLearner(GumbelCodeLearner):
    """Steps of a seed are then the same on any number of devices."""

    def gumbel_noise(self, shape):
        return tf.zeros(shape)


def classifier(mask_zero=False):
    rng = np.random.default_rng(0)
    return keras.Sequential(
        [
            keras.Input((7,), dtype="int32"),
            CodeEmbedding(
                40,
                6,
                num_codebooks=4,
                codebook_size=8,
                codes=rng.integers(8, size=(40, 4)),
                codebooks=0.5 * rng.normal(size=(4, 8, 6)),
                mask_zero=mask_zero,
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                3, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )


def examples(rows=3 * BATCH_SIZE):
    rng = np.random.default_rng(1)
    return rng.integers(40, size=(rows, 7)), rng.integers(3, size=rows)


def fit_classifier(scope, optimizer, mask_zero):
    with scope:
        model = classifier(mask_zero)
        model.compile(
            keras.optimizers.get(optimizer),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    history = model.fit(
        *examples(), batch_size=BATCH_SIZE, epochs=2, shuffle=False, verbose=0
    )
    return model, history.history["loss"]


@pytest.mark.parametrize(
    "name, learning_rate, mask_zero",
    [("SGD", 0.5, False), ("Adam", 0.01, True)],
)
def test_code_embedding_on_two_devices(
    strategy, name, learning_rate, mask_zero
):
    optimizer = {
        "class_name": name,
        "config": {"learning_rate": learning_rate},
    }
    one, one_loss = fit_classifier(
        contextlib.nullcontext(), optimizer, mask_zero
    )
    two, two_loss = fit_classifier(strategy.scope(), optimizer, mask_zero)
    assert not two.jit_compile
    before = classifier(mask_zero).get_weights()
    assert not np.allclose(one.layers[0].codebooks, before[0], atol=1e-3)
    # Sums of 16 gradients in another order, off by a few 2**-24 of numbers of
    # size 1; Adam divides by the gradient's size, which may be 1e-3.
    np.testing.assert_allclose(one_loss, two_loss, rtol=1e-5)
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_array_equal(one.layers[0].codes, two.layers[0].codes)
    replicas = strategy.experimental_local_results(
        two.layers[0].codebooks.value
    )
    assert len(replicas) == 2
    np.testing.assert_array_equal(*replicas)


def test_save_and_load_in_a_scope(strategy, tmp_path):
    path = tmp_path / "model.keras"
    optimizer = {"class_name": "Adam", "config": {"learning_rate": 0.01}}
    model, _ = fit_classifier(strategy.scope(), optimizer, False)
    ids, labels = examples()
    expected = model.predict(ids, verbose=0)
    with strategy.scope():
        model.save(path)
        again = keras.saving.load_model(path)
    alone = keras.saving.load_model(path)
    for loaded in (again, alone):
        # Rows in batches of another size.
        np.testing.assert_allclose(
            loaded.predict(ids, verbose=0), expected, atol=1e-6
        )
        np.testing.assert_array_equal(
            loaded.layers[0].codes, model.layers[0].codes
        )
        loaded.fit(ids, labels, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        again.layers[0].codebooks, alone.layers[0].codebooks, atol=1e-5
    )


def learn(scope, learner_class=GumbelCodeLearner, **kwargs):
    table = np.random.default_rng(2).normal(size=(100, 6))
    with scope:
        learner = learner_class(
            num_codebooks=3,
            codebook_size=4,
            learning_rate=1e-2,
            batch_size=BATCH_SIZE,
            iterations=8,
            validation_interval=4,
            validation_rows=100,
            seed=0,
            verbose=0,
            **kwargs,
        )
    return learner.train(table), table


def test_learner_on_two_devices(strategy):
    # A row has the same gradient on either device only without noise, which
    # each device draws for itself.
    one, _ = learn(contextlib.nullcontext(), NoiselessLearner)
    two, table = learn(strategy.scope(), NoiselessLearner)
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose(
            one.history[key], two.history[key], rtol=1e-4
        )
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert (one.codes == two.codes).mean() > 0.99
    np.testing.assert_array_equal(two.encode(table), two.codes)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"composition": "linear"},
        {"composition": "lstm", "estimator": "soft"},
        {"composition": "concat", "logits": "free"},
    ],
    ids=["linear", "lstm", "free"],
)
def test_kd_learner_on_two_devices(strategy, kwargs):
    one, _ = learn(
        contextlib.nullcontext(), KDCodeLearner, refine=False, **kwargs
    )
    two, _ = learn(strategy.scope(), KDCodeLearner, refine=False, **kwargs)
    assert not two.jit_compile
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose(
            one.history[key], two.history[key], rtol=1e-4
        )
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert (one.codes == two.codes).mean() > 0.99
    for learner in (one, two):
        temperature = learner.temperature(learner.optimizer.iterations)
        assert learner.current_temperature() == temperature < 1


def test_learner_with_noise_on_two_devices(strategy, tmp_path):
    learner, table = learn(strategy.scope())
    assert not learner.jit_compile
    assert np.isfinite(learner.history["loss"]).all()
    again, _ = learn(strategy.scope())
    np.testing.assert_array_equal(learner.codebooks, again.codebooks)

    noises = strategy.run(tf.function(lambda: learner.gumbel_noise((5, 3, 4))))
    first, second = strategy.experimental_local_results(noises)
    assert not np.isin(first, second).any()
    repeated = strategy.experimental_local_results(
        strategy.run(tf.function(lambda: learner.gumbel_noise((5, 3, 4))))
    )
    assert not np.isin(repeated, [first, second]).any()

    learner.save(tmp_path / "learner.keras")
    loaded = keras.saving.load_model(tmp_path / "learner.keras")
    np.testing.assert_array_equal(loaded.encode(table), learner.codes)
