import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.optimizers.sparse_row_optimizer import SparseRowOptimizer
from keras_compembed.optimizers.stepped_variable import SteppedVariable
from keras_compembed.transforms import L1
from keras_compembed.transforms.proximal_step import ProximalStep
from keras_compembed.transforms.proximal_step import shrink


class Rows:
    """As much of `TransformRows` as a proximal step asks for."""

    def __init__(self, l1, anchors=1.0):
        self.amounts = []
        self.l1_value = keras.Variable(l1.l1, trainable=False)
        anchors = keras.Variable(np.full((2, 2), anchors), name="anchors")
        step = ProximalStep(self, l1, self.l1_value, anchors)
        self.variable = SteppedVariable(
            "ones", shape=(3, 2), name="rows", after_step=step
        )

    def after_step(self, step, amount):
        self.amounts.append(float(amount))

    def count(self):
        return tf.constant(10**6)

    def train(self, optimizer, steps=1):
        for _ in range(steps):
            optimizer.apply([tf.ones((3, 2))], [self.variable])


def test_rows_are_shrunk_by_the_rate_times_l1():
    rows = Rows(L1(0.25, threshold="learning_rate"))
    rows.train(keras.optimizers.Adam(0.5), steps=2)
    rows.l1_value.assign(0.5)
    rows.train(keras.optimizers.SGD(0.5))
    assert rows.amounts == [0.125, 0.125, 0.25]


def test_l1_follows_the_target_every_20_steps():
    rows = Rows(L1(0.25, target_nonzeros=4))
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    rows.train(optimizer, steps=39)
    assert float(rows.l1_value) == 0.25
    rows.train(optimizer)
    assert float(rows.l1_value) == 0.375
    rows.train(optimizer, steps=3)
    assert float(rows.l1_value) == 0.375


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Ftrl(),
        SparseRowOptimizer(keras.optimizers.Ftrl()),
        keras.optimizers.Adam(use_ema=True),
    ],
    ids=["ftrl", "ftrl-of-rows", "ema"],
)
def test_optimizers_that_cannot_be_handled(optimizer):
    with pytest.raises(ValueError, match="ANTEmbedding"):
        Rows(L1()).train(optimizer)


def test_anchors_that_are_not_finite():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="must be finite after a step"
    ):
        Rows(L1(), anchors=np.nan).train(keras.optimizers.SGD(0.5))


def soft_threshold(rows, threshold, non_negative):
    rows = np.sign(rows) * np.maximum(np.abs(rows) - threshold, 0)
    return np.maximum(rows, 0) if non_negative else rows


def test_shrink():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 4)).astype("float32")
    threshold = rng.random((5, 1)).astype("float32")
    for non_negative in (False, True):
        np.testing.assert_allclose(
            shrink(tf.constant(rows), threshold, non_negative),
            soft_threshold(rows, threshold, non_negative),
            atol=1e-7,
        )


def test_thresholds_add_up():
    rows = np.random.default_rng(1).normal(size=(50, 4)).astype("float32")
    for non_negative in (False, True):
        once = shrink(rows, 0.75, non_negative)
        twice = shrink(shrink(rows, 0.5, non_negative), 0.25, non_negative)
        np.testing.assert_allclose(once, twice, atol=1e-7)


def test_free_entries_and_infinite_thresholds():
    rows = tf.constant([[-3.0, 2.0, 0.0, -1.0]])
    free = tf.constant([[True, True, False, False]])
    np.testing.assert_array_equal(
        shrink(rows, np.inf, False, free), [[-3, 2, 0, 0]]
    )
    np.testing.assert_array_equal(shrink(rows, 1.5, True, free), [[0, 2, 0, 0]])


def test_nan_stays():
    assert np.isnan(shrink(tf.constant([np.nan]), 1.0, True)).all()
