"""L1 shrinks what an optimizer moves, by as much as it moves each number."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.optimizers import SparseRowOptimizer

SHAPE = (4, 3)


def anchored():
    """A layer with an l1 of 1, and its transform, which is far from 0."""
    layer = kc.ANTEmbedding(
        4, 4, num_anchors=3, l1=1.0, transform="dense", name="words"
    )
    layer.build()
    (weight,) = (x for x in layer.trainable_weights if x is not layer.anchors)
    weight.assign(np.full(SHAPE, 50.0))
    return layer, weight


def sizes_of_steps(optimizer, gradients):
    """What each step shrinks, and how far it moves a variable without l1."""
    twin = keras.Variable(np.full(SHAPE, 50.0, "float32"))
    twin_optimizer = type(optimizer).from_config(optimizer.get_config())
    _, weight = anchored()
    places = [(twin.numpy(), weight.numpy())]
    for gradient in gradients:
        gradient = tf.constant(gradient, "float32")
        twin_optimizer.apply([gradient], [twin])
        optimizer.apply([gradient], [weight])
        places.append((twin.numpy(), weight.numpy()))
    moved = -np.diff(places, axis=0)
    return moved[:, 1] - moved[:, 0], moved[:, 0]


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Adam(0.1, beta_1=0.0, amsgrad=True),
        keras.optimizers.RMSprop(0.1),
        keras.optimizers.Adagrad(0.1),
        keras.optimizers.Adamax(0.1, beta_1=0.0),
        SparseRowOptimizer(keras.optimizers.Adam(0.1, beta_1=0.0)),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_steps_without_momentum_are_gradients_times_their_sizes(optimizer):
    gradients = np.random.default_rng(0).normal(size=(3, *SHAPE))
    gradients += 0.3 * np.sign(gradients)
    found, moved = sizes_of_steps(optimizer, gradients)
    # Numbers of size 50.
    np.testing.assert_allclose(found, moved / gradients, atol=3e-5)


@pytest.mark.parametrize(
    ("optimizer", "sizes"),
    [
        (
            keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.5), initial_scale=2.0
            ),
            [0.5],
        ),
        (
            keras.optimizers.SGD(0.125, gradient_accumulation_steps=3),
            [0, 0, 0.125, 0, 0, 0.125],
        ),
        (
            keras.optimizers.SGD(
                keras.optimizers.schedules.PiecewiseConstantDecay(
                    [0, 1], [0.5, 0.25, 0.125]
                )
            ),
            [0.5, 0.25, 0.125],
        ),
    ],
    ids=["scaled", "accumulating", "schedule"],
)
def test_sizes_are_the_learning_rate(optimizer, sizes):
    found, _ = sizes_of_steps(optimizer, np.ones((len(sizes), *SHAPE)))
    expected = np.broadcast_to(np.reshape(sizes, (-1, 1, 1)), found.shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["Nadam", "Adam"])
def test_coordinates_without_gradients_have_none(name):
    optimizer = getattr(keras.optimizers, name)(0.1)
    (found,), _ = sizes_of_steps(optimizer, [[[1.0, 0.0, 4.0]] * 4])
    assert not found[:, 1].any()
    np.testing.assert_allclose(found[:, 0] / found[:, 2], 4, rtol=1e-3)


@pytest.mark.parametrize("wrap", [lambda inner: inner, SparseRowOptimizer])
def test_variables_of_one_path(wrap):
    """As layers of one name in two towers have, in a model that was loaded."""
    (_, first), (_, second) = anchored(), anchored()
    assert first.path == second.path
    optimizer = wrap(keras.optimizers.Adam(0.1))
    optimizer.apply([tf.ones(SHAPE), tf.fill(SHAPE, 100.0)], [first, second])
    # Adam's first step is its rate, and its size that over the gradient.
    np.testing.assert_allclose(first, np.full(SHAPE, 49.8), atol=1e-5)
    np.testing.assert_allclose(second, np.full(SHAPE, 49.899), atol=1e-5)


class OtherNames(keras.optimizers.Adam):
    def add_variable_from_reference(self, reference, name=None, **kwargs):
        return super().add_variable_from_reference(
            reference, name=f"my_{name}", **kwargs
        )


def test_an_optimizer_whose_divisors_cannot_be_told():
    _, weight = anchored()
    with refused(None, "OtherNames"):
        OtherNames(0.1).apply([tf.ones(SHAPE)], [weight])
