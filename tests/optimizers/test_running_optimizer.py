import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.optimizers import SparseRowOptimizer
from keras_compembed.optimizers.running_optimizer import StepSize
from keras_compembed.optimizers.running_optimizer import find_running_optimizer


class Recorder(keras.constraints.Constraint):
    def __init__(self, variable=None):
        self.found = []
        self.sizes = []

    def __call__(self, weight):
        optimizer = find_running_optimizer()
        self.found.append(optimizer)
        step = StepSize(optimizer, weight)
        scale = float(step.scale)
        if step.slot is None:
            self.sizes.append(np.full(weight.shape, scale))
        else:
            self.sizes.append(scale * step.rates(step.slot.value).numpy())
        return weight


def recorded_weight():
    recorder = Recorder()
    weight = keras.Variable(np.zeros((2, 3), "float32"), name="weight")
    weight.constraint = recorder
    return weight, recorder


def test_none_is_running():
    assert find_running_optimizer() is None


def test_finds_the_optimizer_that_moves_weights():
    inner = keras.optimizers.SGD(0.5)
    for outer in (
        inner,
        keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0),
        SparseRowOptimizer(keras.optimizers.SGD(0.5)),
    ):
        weight, recorder = recorded_weight()
        outer = type(outer).from_config(outer.get_config())
        outer.apply([tf.ones((2, 3))], [weight])
        expected = getattr(outer, "inner_optimizer", outer)
        assert recorder.found == [expected]
        np.testing.assert_array_equal(recorder.sizes[0], np.full((2, 3), 0.5))


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Adam(0.1, beta_1=0.0),
        keras.optimizers.Adam(0.1, beta_1=0.0, amsgrad=True),
        keras.optimizers.AdamW(0.1, beta_1=0.0, weight_decay=0.0),
        keras.optimizers.RMSprop(0.1),
        keras.optimizers.Adagrad(0.1),
        keras.optimizers.Adamax(0.1, beta_1=0.0),
        keras.optimizers.SGD(0.1),
        SparseRowOptimizer(keras.optimizers.Adam(0.1, beta_1=0.0)),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_step_sizes(optimizer):
    # Without momentum, a step is the gradient times the step size.
    weight, recorder = recorded_weight()
    rng = np.random.default_rng(0)
    for _ in range(3):
        gradient = rng.normal(size=(2, 3)).astype("float32")
        before = weight.numpy()
        optimizer.apply([tf.constant(gradient)], [weight])
        np.testing.assert_allclose(
            before - recorder.sizes[-1] * gradient, weight.numpy(), atol=1e-6
        )


def test_nadam_follows_coordinates():
    weight, recorder = recorded_weight()
    optimizer = keras.optimizers.Nadam(0.1)
    optimizer.apply([tf.constant([[1.0, 2.0, 4.0]] * 2)], [weight])
    sizes = recorder.sizes[0]
    np.testing.assert_allclose(sizes[0, 0] / sizes[0], [1, 2, 4], rtol=1e-5)


def test_coordinates_without_gradients_have_none():
    weight, recorder = recorded_weight()
    gradient = tf.constant([[0.0, 1.0, 0.0]] * 2)
    keras.optimizers.Adam(0.1).apply([gradient], [weight])
    np.testing.assert_array_equal(recorder.sizes[0] > 0, gradient > 0)


def test_steps_that_only_accumulate():
    weight, recorder = recorded_weight()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    for _ in range(6):
        optimizer.apply([tf.ones((2, 3))], [weight])
    sizes = [size[0, 0] for size in recorder.sizes]
    np.testing.assert_allclose(sizes, [0, 0, 0.1] * 2, rtol=1e-6)


def test_schedules():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [0, 1], [0.5, 0.25, 0.125]
    )
    weight, recorder = recorded_weight()
    optimizer = keras.optimizers.SGD(schedule)
    for _ in range(3):
        optimizer.apply([tf.ones((2, 3))], [weight])
    sizes = [size[0, 0] for size in recorder.sizes]
    np.testing.assert_array_equal(sizes, [0.5, 0.25, 0.125])


@pytest.mark.parametrize("wrap", [lambda inner: inner, SparseRowOptimizer])
def test_variables_of_one_path(wrap):
    """As layers of one name in two towers have, in a model that was loaded."""
    weights, recorders = zip(
        *(recorded_weight() for _ in range(2)), strict=True
    )
    assert weights[0].path == weights[1].path
    optimizer = wrap(keras.optimizers.Adam(0.1))
    gradients = [tf.ones((2, 3)), tf.fill((2, 3), 100.0)]
    optimizer.apply(gradients, list(weights))
    # Adam's first step divides by the gradient.
    for gradient, recorder in zip(gradients, recorders, strict=True):
        size = 0.1 / gradient.numpy()
        np.testing.assert_allclose(recorder.sizes[0], size, rtol=1e-5)


def test_slot_that_cannot_be_told():
    weights = [recorded_weight()[0] for _ in range(2)]
    optimizer = keras.optimizers.Adam()
    optimizer.apply([tf.ones((2, 3))], weights[:1])
    with pytest.raises(ValueError, match="must keep a variable named"):
        StepSize(optimizer, weights[1])
