import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.transforms.activations import entmax
from keras_compembed.transforms.activations import sparsemax


def by_bisection(row, power):
    """Weights max(row - t, 0) ** power, t found so that they sum to 1."""
    low, high = row.max() - 1, row.max()
    for _ in range(100):
        middle = (low + high) / 2
        total = (np.maximum(row - middle, 0) ** power).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.maximum(row - low, 0) ** power


def random_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 6)) * np.geomspace(0.01, 10, 20)[:, None]
    rows[3, :2] = 0.5
    rows[4] = 0
    return rows


@pytest.mark.parametrize(
    "function, scale, power", [(sparsemax, 1, 1), (entmax, 0.5, 2)]
)
def test_against_bisection(function, scale, power):
    rows = random_rows()
    weights = function(tf.constant(rows)).numpy()
    for row, got in zip(rows, weights, strict=True):
        np.testing.assert_allclose(
            got, by_bisection(scale * row, power), atol=1e-12
        )
    assert (weights == 0).any()


@pytest.mark.parametrize("function", [sparsemax, entmax])
def test_gradients(function):
    rows = tf.constant(random_rows())
    upstream = tf.constant(np.random.default_rng(1).normal(size=rows.shape))

    def value(rows):
        return tf.reduce_sum(upstream * function(rows))

    with tf.GradientTape() as tape:
        tape.watch(rows)
        loss = value(rows)
    gradient = tape.gradient(loss, rows).numpy()
    step = 1e-6
    for place in ((0, 1), (7, 3), (12, 0), (19, 5)):
        moved = np.zeros(rows.shape)
        moved[place] = step
        slope = (value(rows + moved) - value(rows - moved)) / (2 * step)
        np.testing.assert_allclose(gradient[place], slope, atol=1e-6)


def test_one_column():
    for function in (sparsemax, entmax):
        np.testing.assert_array_equal(
            function(tf.zeros((3, 1))), np.ones((3, 1))
        )
