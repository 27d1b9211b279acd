import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import cane
from errors import refused

from keras_compembed import CANELoss
from keras_compembed import CANESoftmax
from keras_compembed.classes import FrequentClasses
from keras_compembed.optimizers import SparseRowOptimizer

CLASSES, WIDTH = 40, 6
INVALID = tf.errors.InvalidArgumentError


def make_head(**kwargs):
    selector = FrequentClasses(np.arange(CLASSES))
    kwargs = {"num_candidates": 5, "num_noises": 5, **kwargs}
    return cane(CLASSES, selector=selector, **kwargs)


def make_model(loss=None, **kwargs):
    model = keras.Sequential([keras.Input((WIDTH,)), make_head()])
    model.compile("sgd", loss or CANELoss(), **kwargs)
    return model


def data(rows=24):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    return x, rng.integers(CLASSES, size=rows)


def exact_losses(model, x, y):
    return model.layers[-1].exact(tf.constant(x), tf.constant(y))[0].numpy()


def test_evaluation_sampled_is_what_training_reports():
    x, y = data()
    exact = make_model(run_eagerly=True)
    sampled = make_model(CANELoss(evaluation="sampled"), run_eagerly=True)
    expected = np.mean(exact_losses(exact, x, y))
    np.testing.assert_allclose(
        exact.evaluate(x, y, verbose=0), expected, rtol=1e-5
    )
    first = sampled.evaluate(x, y, verbose=0)
    # With the same noises each time.
    assert first == sampled.evaluate(x, y, verbose=0)
    assert first != sampled.evaluate(x[::-1], (y + 1)[::-1], verbose=0)
    assert abs(first - expected) < 1
    history = exact.fit(x, y, validation_data=(x, y), verbose=0).history
    expected = np.mean(exact_losses(exact, x, y))
    np.testing.assert_allclose(history["val_loss"], [expected], rtol=1e-5)


def losses_of_twelve(labels, sample_weight=None, sequences=False, **kwargs):
    """Losses of a step in which labels of others are noises."""
    start = keras.initializers.RandomNormal(seed=0)
    kwargs_of_head = {"kernel_initializer": start, "num_noises": 25}
    counts = 1 + np.arange(CLASSES)
    head = make_head(class_counts=counts, shared="labels", **kwargs_of_head)
    x, _ = data()
    if sequences:
        x, labels = x.reshape(8, 3, WIDTH), labels.reshape(8, 3)
    loss = CANELoss(reduction=None, **kwargs)
    losses = loss(labels, head(x, training=True), sample_weight=sample_weight)
    return losses.numpy().reshape(-1)[:12]


FIRST = 1.0 * (np.arange(24) < 12)


@pytest.mark.parametrize(
    "weight, sequences",
    [(FIRST[:, None], False), (FIRST.reshape(8, 3), True)],
)
def test_examples_without_weight_are_no_noises(weight, sequences):
    _, y = data()
    # As in padded batches.
    padded = [np.where(FIRST, y, label) for label in (0, 1)]
    zero, one = (losses_of_twelve(x, weight, sequences) for x in padded)
    np.testing.assert_array_equal(zero, one)
    some = 1e-3 + weight
    zero, one = (losses_of_twelve(x, some, sequences) for x in padded)
    assert (np.abs(zero - one) > 1e-2).any()


def test_masked_labels_move_no_rows():
    """Nor on by their momentum, where an optimizer sees a gradient of 0."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 50, size=(24, 6))
    ids[12:][rng.random((12, 6)) < 0.4] = 0
    labels = rng.integers(10, 50, size=ids.shape)
    # The first batch gives both rows a momentum.
    labels[0, :2] = 3, 7
    weights = []
    for masked in (3, 7):
        start = keras.initializers.RandomNormal(seed=1)
        table = keras.layers.Embedding(50, WIDTH, start, mask_zero=True)
        head = cane(5000, selector=FrequentClasses(np.arange(5000)))
        model = keras.Sequential(
            [keras.Input((6,), dtype="int32"), table, head]
        )
        adam = keras.optimizers.Adam(0.1)
        optimizer = SparseRowOptimizer(adam)
        model.compile(optimizer, CANELoss(), run_eagerly=True)
        y = np.where(ids > 0, labels, masked)
        model.fit(ids, y, batch_size=12, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_ignored_labels():
    x, y = data()
    ignored = np.where(np.arange(len(y)) < 10, y, -100)
    model = make_model(CANELoss(ignore_class=-100), run_eagerly=True)
    expected = np.mean(exact_losses(model, x[:10], y[:10]))
    np.testing.assert_allclose(
        model.evaluate(x, ignored, verbose=0), expected, rtol=1e-5
    )
    before = model.layers[-1].kernel.numpy()
    model.fit(x, np.full_like(y, -100), verbose=0)
    np.testing.assert_array_equal(model.layers[-1].kernel.numpy(), before)


@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_labels_out_of_range(method):
    model, (x, y) = make_model(), data()
    for wrong in (-1, CLASSES, 2**32 + 3):
        y[7] = wrong
        with pytest.raises(INVALID, match=f"from 0 to {CLASSES - 1}"):
            getattr(model, method)(x, y, verbose=0)


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.apart)]
)
def test_labels_that_are_no_classes(jit_compile):
    head, (x, y) = make_head(), data()
    head.build((None, WIDTH))

    @tf.function(jit_compile=jit_compile)
    def loss(x, y):
        return CANELoss()(y, head(x, training=True))

    for wrong in (0.5, np.nan, 1e30, CLASSES):
        labels = tf.constant(np.where(np.arange(24) == 7, wrong, y), "float32")
        if jit_compile:
            # XLA leaves checks out.
            assert np.isnan(loss(tf.constant(x), labels))
            continue
        with pytest.raises(INVALID, match="whole numbers|from 0 to"):
            loss(tf.constant(x), labels)


def zeros(*shape):
    return np.zeros(shape, "int32")


@pytest.mark.parametrize(
    ("labels", "features", "received"),
    [
        (zeros(4, CLASSES), (4, WIDTH), (4, CLASSES)),
        (zeros(), (4, WIDTH), ()),
        # Each of these would be that of all examples.
        (zeros(1), (4, WIDTH), (1,)),
        (zeros(4, 1), (4, 3, WIDTH), (4, 1)),
        (tf.ragged.constant([[1, 2], [3]]), (2, WIDTH), None),
        (np.array(["1", "2"]), (2, WIDTH), "string"),
    ],
)
def test_labels_of_another_kind(labels, features, received):
    outputs = make_head()(np.zeros(features, "float32"))
    with refused(received=received) as caught:
        CANELoss()(labels, outputs)
    assert "label" in str(caught.value)


def test_labels_of_half_precision():
    x, y = data()
    # float16 has no 2049.
    head = CANESoftmax(2050, seed=0)
    for dtype in ("float16", "bfloat16"):
        with refused(received="labels of"):
            CANELoss()(tf.cast(y, dtype), head(x))
    assert np.isfinite(CANELoss()(tf.cast(y, "float32"), head(x)))


def test_outputs_without_a_mark():
    with refused("CANELoss"):
        CANELoss()(np.zeros(3, "int32"), tf.zeros((3, WIDTH)))


def test_own_training_step_in_a_graph(caplog):
    """AutoGraph, which reads all that is called there, has nothing to say."""
    head, (x, y) = make_head(), data()
    loss = CANELoss(evaluation="sampled")

    @tf.function
    def step(x, y):
        return loss(y, head(x, training=True))

    assert np.isfinite(step(tf.constant(x), tf.constant(y)))
    assert not caplog.records


def test_config():
    loss = CANELoss(evaluation="sampled", ignore_class=-1, reduction="sum")
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(loss)))
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == loss.get_config()
    assert CANELoss().name.startswith("cane_loss")
    with refused("evaluation", "quick"):
        CANELoss(evaluation="quick")
    assert CANELoss(ignore_class=np.int64(-1)).ignore_class == -1
    with refused("ignore_class", 1.5):
        CANELoss(ignore_class=1.5)
