"""Layers learn in float16, with scaled losses, what they learn in float32."""

import keras
import multi_worker
import numpy as np
import pytest
import tensorflow as tf

POLICY = "mixed_float16"


@pytest.fixture(autouse=True)
def float32():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("name", ["codes", "anchors", "tree", "labels"])
def test_losses_are_near_those_of_float32(name):
    strategy = tf.distribute.get_strategy()
    expected = multi_worker.train(name, strategy)["history loss"]
    keras.config.set_dtype_policy(POLICY)
    found = multi_worker.train(name, strategy)
    # Of products in 11 bits; what is chosen by them, codes and candidates,
    # may differ.
    np.testing.assert_allclose(found["history loss"], expected, rtol=0.02)
    assert found["history loss"] != expected
    for key, value in found.items():
        assert np.isfinite(np.asarray(value, "float64")).all(), key


@pytest.mark.parametrize("name", ["codes", "anchors", "labels"])
def test_losses_are_scaled(name):
    keras.config.set_dtype_policy(POLICY)
    make, _ = multi_worker.MODELS[name]
    optimizer = make().optimizer
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
