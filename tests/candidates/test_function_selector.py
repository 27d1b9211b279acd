import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import FunctionSelector


@keras.saving.register_keras_serializable(package="tests")
def by_sign(features):
    start = 3 * tf.cast(features[:, :1] > 0, "int32")
    return start + tf.range(3)


def test_function_in_a_model(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype("float32")
    y = rng.integers(6, size=60)
    head = kc.CANESoftmax(30, selector=by_sign, num_candidates=3)
    model = keras.Sequential([keras.Input((4,)), head])
    model.compile("sgd", kc.CANELoss(), metrics=[kc.Coverage()])
    model.fit(x, y, verbose=0)
    _, coverage = model.evaluate(x, y, verbose=0)
    assert coverage == pytest.approx(np.mean((x[:, 0] > 0) == (y >= 3)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].selector.function is by_sign
    assert loaded.evaluate(x, y, verbose=0) == model.evaluate(x, y, verbose=0)


def test_bad_functions():
    with pytest.raises(ValueError, match="`function` must be a function"):
        FunctionSelector(3)
    selector = FunctionSelector(lambda features: features[:, :2])
    selector.attach(10, 3)
    with pytest.raises(ValueError, match=r"\(rows, 3\) or \(3,\).*\(5, 2\)"):
        selector.select(None, tf.zeros((5, 4)))
