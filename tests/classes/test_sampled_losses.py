"""Losses over sampled classes, over those of a batch, and over all classes."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import FirstClasses
from class_models import build_model
from class_models import cane
from class_models import check_equal
from class_models import counts
from class_models import examples
from class_models import log_sum_exp
from class_models import loss_and_gradients
from class_models import own
from class_models import shares_of_noise
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import UnigramNoise
from keras_compembed.classes.noise import UniformNoise

ROWS = 20
COUNTS = np.maximum(counts(), 0.5)
# Some twice, and some of them labels.
SAMPLED = np.array([3, 0, 7, 7, 1, 10, 0], "int32")


class FixedNoise(UnigramNoise):
    """Always draws the same."""

    sampled = SAMPLED

    def sample(self, bits, excluded=None):
        return tf.constant(self.sampled)


def sampled_softmax(scores, labels):
    """Each class once, by the probability that it is among the samples."""
    q = shares_of_noise()
    scores = scores - np.log(1 - (1 - q) ** len(SAMPLED))
    label, sampled = own(scores, labels), np.unique(SAMPLED)
    others = np.where(labels[:, None] == sampled, -np.inf, scores[:, sampled])
    return log_sum_exp(np.column_stack([label, others])) - label


def nce(scores, labels):
    scores = scores - np.log(len(SAMPLED) * shares_of_noise())
    noise = np.log1p(np.exp(scores[:, SAMPLED])).sum(axis=1)
    return np.log1p(np.exp(-own(scores, labels))) + noise


def among(scores, labels, near):
    """Cross-entropies of labels among classes of a mask, and themselves."""
    near[np.arange(len(labels)), labels] = True
    return log_sum_exp(np.where(near, scores, -np.inf)) - own(scores, labels)


def in_batch(scores, labels):
    q = COUNTS / COUNTS.sum()
    scores = scores - np.log(1 - (1 - q) ** (len(labels) - 1))
    near = np.zeros(scores.shape, bool)
    near[:, labels] = True
    return among(scores, labels, near)


def of_scores(function):
    def losses(features, labels, kernel, bias):
        return function(features @ kernel.T + bias, labels)

    return losses


# Each with its reference.
LOSSES = {
    "sampled": (kc.SampledSoftmaxLoss, of_scores(sampled_softmax)),
    "nce": (kc.NCELoss, of_scores(nce)),
    "in_batch": (kc.InBatchSoftmaxLoss, of_scores(in_batch)),
}
OF_SAMPLES = ["sampled", "nce"]


def make_layer(noise=None, width=None, **kwargs):
    parts = {"selector": FirstClasses(), "class_counts": counts(), **kwargs}
    noise = noise or UnigramNoise(counts())
    numbers = {"num_candidates": 3, "num_noises": 4}
    return cane(NUM_CLASSES, width, noise=noise, **numbers, **parts)


def random_layer(noise=None, **kwargs):
    return make_layer(noise or FixedNoise(counts()), WIDTH, **kwargs)


def float64_arrays(layer, features):
    arrays = features, layer.kernel.numpy(), layer.bias.numpy()
    return [array.astype("float64") for array in arrays]


@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [(name, False) for name in LOSSES]
    + [
        pytest.param(name, True, marks=pytest.mark.apart)
        for name in ("sampled", "nce", "in_batch")
    ],
)
def test_loss_and_gradients(name, jit_compile):
    make_loss, losses = LOSSES[name]
    layer = random_layer()
    features, labels = examples(ROWS)

    def reference(features, kernel, bias):
        return np.mean(losses(features, labels, kernel, bias))

    arrays = float64_arrays(layer, features)
    value, gradients = loss_and_gradients(
        layer, make_loss(), features, labels, jit_compile
    )
    check_equal(value, gradients, reference, arrays)


def test_two_devices(strategy):
    results = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            model = build_model(make_layer(use_bias=False))
            adam = keras.optimizers.Adam(0.02)
            model.compile(adam, kc.SampledSoftmaxLoss(), jit_compile=False)
        history = model.fit(*examples(), 16, shuffle=False, verbose=0)
        results.append([history.history["loss"], *model.get_weights()])
    for one, two in zip(*results, strict=True):
        # Adam divides sums in another order by their size.
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_metrics_of_training(name):
    """They go by the classes of the loss, and draw no candidates."""

    class NoSelector(FirstClasses):
        def select(self, scores, features, context=None):
            raise AssertionError

    layer = random_layer(selector=NoSelector())
    features, labels = examples(ROWS)
    outputs = layer(features, training=True)
    LOSSES[name][0]()(labels, outputs)
    metrics = [kc.ClassAccuracy(), kc.Perplexity(), kc.Coverage()]
    for metric in metrics:
        metric.update_state(labels, outputs)
    accuracy, perplexity, coverage = (float(m.result()) for m in metrics)
    scores = features @ layer.kernel.numpy().T + layer.bias.numpy()
    others, losses = scores[:, SAMPLED], sampled_softmax(scores, labels)
    best = own(scores, labels) >= others.max(axis=1)
    assert accuracy == pytest.approx(best.mean())
    assert perplexity == pytest.approx(np.exp(losses.mean()), rel=1e-4)
    assert coverage == 0


@pytest.mark.parametrize("name", LOSSES)
def test_examples_left_out(name):
    """What a mask leaves out changes nothing for the others."""
    layer, make_loss = random_layer(), LOSSES[name][0]
    features, labels = examples(ROWS)
    counted = np.arange(ROWS) % 3 > 0
    wild = np.where(counted[:, None], features, 100)
    padded = np.where(counted, labels, -1)
    wanted = make_loss(reduction="none")(
        labels[counted], random_layer()(features[counted], training=True)
    )
    losses = make_loss(ignore_class=-1, reduction="none")(
        padded.reshape(4, 5),
        layer(wild.reshape(4, 5, WIDTH).astype("float32"), training=True),
    ).numpy()
    assert losses.shape == (4, 5)
    losses = losses.reshape(-1)
    np.testing.assert_array_equal(losses[~counted], 0)
    np.testing.assert_allclose(losses[counted], wanted, rtol=1e-5, atol=1e-6)
    nothing = make_loss(ignore_class=-1)(
        -np.ones(ROWS, "int32"), layer(features, training=True)
    )
    assert float(nothing) == 0
    # As `tf.data` gives where all rows of a batch were filtered out.
    step = tf.function(
        lambda x, y: make_loss()(y, layer(x, training=True)),
        [tf.TensorSpec((None, WIDTH)), tf.TensorSpec((None,), "int32")],
    )
    assert step(features[:0], labels[:0]) == 0


def test_default_number_of_samples():
    drawn = []

    class Noise(UniformNoise):
        def sample(self, bits, excluded=None):
            drawn.append(bits.shape)
            return super().sample(bits, excluded)

    layer = make_layer(Noise())
    features, labels = examples(ROWS)
    for number in (None, 5, 30):
        loss = kc.NCELoss(num_sampled=number)
        assert np.isfinite(loss(labels, layer(features, training=True)))
    assert drawn == [(7,), (5,), (30,)]


def test_layers_that_do_not_fit():
    features, labels = examples(4)
    layer = make_layer(class_counts=None, name="titles")
    with refused("class_counts", "'titles'"):
        kc.InBatchSoftmaxLoss()(labels, layer(features, training=True))
    layer = cane(NUM_CLASSES, selector=kc.classes.AllClasses())
    with refused("num_sampled", None):
        kc.NCELoss()(labels, layer(features, training=True))
    with refused("num_sampled", 2.5):
        kc.SampledSoftmaxLoss(num_sampled=2.5)
    model = build_model(keras.layers.Dense(NUM_CLASSES))
    for make_loss, _ in LOSSES.values():
        with pytest.raises(ValueError, match="output of a"):
            make_loss()(tf.constant([1]), model(np.zeros((1, WIDTH))))


@pytest.mark.parametrize("name", ["sampled", "nce"])
def test_equal_to_tensorflow(name):
    noise = FixedNoise(counts())
    # TensorFlow takes samples for different classes.
    noise.sampled = np.array([3, 0, 7, 1, 10], "int32")
    layer = random_layer(noise)
    features, labels = examples(ROWS)
    q, number = shares_of_noise(), len(noise.sampled)
    function, expected = {
        # As its samplers of different classes have it.
        "sampled": (tf.nn.sampled_softmax_loss, 1 - (1 - q) ** number),
        "nce": (tf.nn.nce_loss, number * q),
    }[name]
    expected = expected.astype("float32")
    wanted = function(
        weights=tf.constant(layer.kernel.numpy()),
        biases=tf.constant(layer.bias.numpy()),
        labels=tf.constant(labels[:, None], "int64"),
        inputs=tf.constant(features),
        num_sampled=number,
        num_classes=NUM_CLASSES,
        sampled_values=(
            tf.constant(noise.sampled, "int64"),
            tf.constant(expected[labels][:, None]),
            tf.constant(expected[noise.sampled]),
        ),
    )
    loss = LOSSES[name][0](num_sampled=number, reduction="none")
    losses = loss(labels, layer(features, training=True))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5, atol=1e-6)
