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
    selector = FunctionSelector(
        lambda features: tf.cast(features[:, :2], "int32")
    )
    selector.attach(10, 3)
    with pytest.raises(ValueError, match=r"\(rows, 3\) or \(3,\).*\(5, 2\)"):
        selector.select(None, tf.zeros((5, 4)))


def attached(function):
    selector = FunctionSelector(function)
    selector.attach(10, 3)
    return selector


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, 10, 1], "from 0 to 9 .*out of range:\\W*1"),
        ([3, -2, 1], "from 0 to 9 .*out of range:\\W*1"),
        ([3, 4, 3], "differ within a row.*such as:\\W*3"),
        ([[3, 4, 5], [7, 8, 8]], "differ within a row.*such as:\\W*8"),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_ids_that_may_not_be(ids, message, dtype):
    selector = attached(lambda features: tf.constant(ids, dtype))
    features = tf.zeros((2, 4))
    for select in (selector.select, tf.function(selector.select)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"(?s){message}"
        ):
            select(None, features)

    if dtype != "int32":
        # Which is what all are cast to.
        return

    @tf.function(jit_compile=True)
    def compiled(features):
        return selector.select(None, features)

    # XLA leaves checks out; what is wrong does not count.
    got = compiled(features).numpy()
    for row, given in zip(
        np.atleast_2d(got), np.atleast_2d(np.array(ids)), strict=True
    ):
        kept = row[row >= 0]
        assert len(set(kept)) == len(kept) and set(kept) <= set(given)
        right = set(given[(given >= 0) & (given < 10)])
        assert set(kept) == right


@pytest.mark.parametrize(
    ("ids", "dtype"),
    [
        ([[3, -1, -1], [9, 0, 4]], "int32"),
        ([[3, -1, -1], [9, 0, 4]], "int64"),
        ([[3, 1, 2], [9, 0, 4]], "uint8"),
    ],
)
def test_ids_that_may_be(ids, dtype):
    selector = attached(lambda features: tf.constant(ids, dtype))
    got = selector.select(None, tf.zeros((2, 4)))
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, ids)


def test_what_is_no_id():
    selector = attached(lambda features: features[:, :3])
    with pytest.raises(ValueError, match="integer ids.*dtype float32"):
        selector.select(None, tf.zeros((5, 4)))
    selector = attached(lambda features: tf.zeros((4, 3), "int32"))
    with pytest.raises(ValueError, match=r"for each example, 5.*\(4, 3\)"):
        selector.select(None, tf.zeros((5, 4)))
    selector = attached(lambda features: None)
    with pytest.raises(ValueError, match="must return ids. Received: None"):
        selector.select(None, tf.zeros((5, 4)))
