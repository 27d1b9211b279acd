"""Sampled softmax, NCE and BlackOut, and the full softmax they estimate."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import FirstClasses
from class_models import build_model
from class_models import check_any_size
from class_models import check_exact
from class_models import check_files
from class_models import counts
from class_models import examples
from class_models import fit
from class_models import loss_and_gradients
from class_models import numerical_gradient
from class_models import randomize

import keras_compembed as kc
from keras_compembed import baselines
from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.noises import LearnedNoise
from keras_compembed.noises import UniformNoise
from keras_compembed.noises import UnigramNoise
from keras_compembed.trees import ClassTree

# Some twice, and some of them labels.
SAMPLED = np.array([3, 0, 7, 7, 1, 10, 0], "int32")


class FixedNoise(UnigramNoise):
    """Always draws the same."""

    sampled = SAMPLED

    def sample(self, bits, excluded=None):
        return tf.constant(self.sampled)


def log_sum_exp(scores):
    largest = scores.max(axis=1, keepdims=True)
    return (largest + np.log(np.exp(scores - largest).sum(1, keepdims=True)))[
        :, 0
    ]


def full_losses(scores, labels):
    return log_sum_exp(scores) - scores[np.arange(len(labels)), labels]


def _corrected(scores, labels):
    """Scores less the logarithm of expected counts, as the losses take them."""
    q = counts() ** 0.75
    q = q / q.sum()
    scores = scores - np.log(len(SAMPLED) * q)
    hits = labels[:, None] == SAMPLED
    return scores[np.arange(len(labels)), labels], scores[:, SAMPLED], hits


def sampled_softmax_losses(scores, labels):
    """Each class once, by the probability that it is among the samples."""
    q = counts() ** 0.75
    q = q / q.sum()
    scores = scores - np.log(1 - (1 - q) ** len(SAMPLED))
    label = scores[np.arange(len(labels)), labels]
    sampled = np.unique(SAMPLED)
    hits = labels[:, None] == sampled
    sampled = np.where(hits, -np.inf, scores[:, sampled])
    return log_sum_exp(np.column_stack([label, sampled])) - label


def nce_losses(scores, labels):
    label, sampled, _ = _corrected(scores, labels)
    return np.log1p(np.exp(-label)) + np.log1p(np.exp(sampled)).sum(axis=1)


def blackout_losses(scores, labels):
    label, sampled, hits = _corrected(scores, labels)
    weights = np.exp(np.column_stack([label, np.where(hits, -np.inf, sampled)]))
    p = weights / weights.sum(axis=1, keepdims=True)
    return -np.log(p[:, 0]) - np.log(1 - p[:, 1:]).sum(axis=1)


def gbce_losses(scores, labels):
    """As the paper has it, of scores as they are."""
    label = scores[np.arange(len(labels)), labels]
    positive = 1 / (1 + np.exp(-label))
    negative = 1 / (1 + np.exp(-scores[:, SAMPLED]))
    negative = np.where(labels[:, None] == SAMPLED, 0, negative)
    share, t = len(SAMPLED) / (NUM_CLASSES - 1), 0.75
    beta = share * (t * (1 - 1 / share) + 1 / share)
    logs = np.log(positive**beta) + np.log(1 - negative).sum(axis=1)
    return -logs / (len(SAMPLED) + 1)


REFERENCES = {
    baselines.FullSoftmaxLoss: full_losses,
    baselines.SampledSoftmaxLoss: sampled_softmax_losses,
    baselines.NCELoss: nce_losses,
    baselines.BlackOutLoss: blackout_losses,
    baselines.GBCELoss: gbce_losses,
}
SAMPLED_LOSSES = list(REFERENCES)[1:]


def make_layer(noise=None, **kwargs):
    kwargs = {
        "selector": FirstClasses(),
        "num_candidates": 3,
        "num_noises": 4,
        "noise": noise or UnigramNoise(counts()),
        "seed": 0,
    } | kwargs
    return CANESoftmax(NUM_CLASSES, **kwargs)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("loss_class", REFERENCES)
def test_loss_and_gradients(loss_class, jit_compile):
    layer = make_layer(FixedNoise(counts()))
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples(20)
    kernel = layer.kernel.numpy().astype("float64")
    bias = layer.bias.numpy().astype("float64")

    def reference(features, kernel, bias):
        scores = features @ kernel.T + bias
        return REFERENCES[loss_class](scores, labels).mean()

    arrays = features.astype("float64"), kernel, bias
    value, gradients = loss_and_gradients(
        layer, loss_class(), features, labels, jit_compile
    )
    assert float(value) == pytest.approx(reference(*arrays), rel=1e-5)
    expected = numerical_gradient(reference, *arrays)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss_class", SAMPLED_LOSSES[:2])
def test_equal_to_tensorflow(loss_class):
    noise = FixedNoise(counts())
    # TensorFlow takes samples for different classes.
    noise.sampled = np.array([3, 0, 7, 1, 10], "int32")
    layer = make_layer(noise)
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples(20)
    function = {
        baselines.SampledSoftmaxLoss: tf.nn.sampled_softmax_loss,
        baselines.NCELoss: tf.nn.nce_loss,
    }[loss_class]
    q = counts() ** 0.75 / (counts() ** 0.75).sum()
    number = len(noise.sampled)
    expected = {
        # As its samplers of different classes have it.
        baselines.SampledSoftmaxLoss: 1 - (1 - q) ** number,
        baselines.NCELoss: number * q,
    }[loss_class].astype("float32")
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
    loss = loss_class(num_sampled=len(noise.sampled), reduction="none")
    losses = loss(labels, layer(features, training=True))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5, atol=1e-6)


def test_many_samples_of_frequent_labels():
    """The sampled softmax is then the full one, also where labels repeat."""
    layer = make_layer(UnigramNoise(counts() + 1))
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples()
    sampled, full = (
        loss_class(reduction="none", **kwargs)(
            labels, layer(features, training=True)
        )
        for loss_class, kwargs in (
            (baselines.SampledSoftmaxLoss, {"num_sampled": 2000}),
            (baselines.FullSoftmaxLoss, {}),
        )
    )
    np.testing.assert_allclose(sampled, full, rtol=1e-4, atol=1e-5)


def test_blackout_of_extreme_scores():
    loss = baselines.BlackOutLoss()
    label = tf.Variable([0.0, 200.0, 0.0])
    sampled = tf.Variable([[200.0, 0.0], [0.0, 0.0], [300.0, 300.0]])
    hits = tf.constant([[False, False], [False, False], [True, True]])
    with tf.GradientTape() as tape:
        losses = loss.sampled_losses(label, sampled, hits, NUM_CLASSES)
    # -log p of the label, and -log(1 - p) of the sample that takes all.
    expected = [200 + 200 - np.log(2), 0, 0]
    np.testing.assert_allclose(losses, expected, rtol=1e-6, atol=1e-6)
    by_label, by_sampled = tape.gradient(losses, [label, sampled])
    np.testing.assert_allclose(by_label, [-1.5, 0, 0], atol=1e-6)
    np.testing.assert_allclose(
        by_sampled, [[2, -0.5], [0, 0], [0, 0]], atol=1e-6
    )


@functools.cache
def trained(loss_class):
    """A trained model, and the exact loss that it reaches."""
    model, _ = fit(
        lambda: make_layer(class_counts=counts()),
        loss_class(),
        epochs=15,
        # Gradients of all losses are compared under XLA above.
        jit_compile=False,
    )
    return model, model.evaluate(*examples(), verbose=0)


@pytest.mark.parametrize("loss_class", REFERENCES)
def test_fit(loss_class, tmp_path):
    model, exact = trained(loss_class)
    # What the full softmax reaches.
    _, best_loss = trained(baselines.FullSoftmaxLoss)
    features, labels = examples()
    shares = counts() / counts().sum()
    unigram = -np.log(shares[labels]).mean()
    # Far from what frequencies alone reach, near what the full softmax does.
    assert exact < best_loss + 0.35 * (unigram - best_loss)
    layer = model.layers[-1]

    def log_probabilities(features):
        scores = features @ layer.kernel.numpy().astype("float64").T
        scores += layer.bias.numpy()
        return scores - log_sum_exp(scores)[:, None]

    check_exact(model, log_probabilities)
    check_files(model, tmp_path / "model.keras")


@pytest.mark.parametrize("loss_class", REFERENCES)
def test_sampled_evaluation_learns_nothing(loss_class):
    noise = LearnedNoise(refresh_every=1)
    layer = make_layer(noise)
    features, labels = examples()
    outputs = layer(features, training=False)
    value = loss_class(evaluation="sampled")(labels, outputs)
    assert np.isfinite(value) and value > 0
    assert not noise.misses.numpy().any()
    assert not noise.age.numpy()


@pytest.mark.parametrize("loss_class", REFERENCES)
def test_metrics_of_training(loss_class):
    """They go by the classes of the loss, and draw no candidates."""

    class NoSelector(FirstClasses):
        def select(self, scores, features, context=None):
            raise AssertionError

    layer = make_layer(FixedNoise(counts()), selector=NoSelector())
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples(20)
    outputs = layer(features, training=True)
    loss_class()(labels, outputs)
    metrics = [kc.ClassAccuracy(), kc.Perplexity(), kc.Coverage()]
    for metric in metrics:
        metric.update_state(labels, outputs)
    accuracy, perplexity, coverage = (float(m.result()) for m in metrics)
    scores = features @ layer.kernel.numpy().T + layer.bias.numpy()
    own = scores[np.arange(20), labels]
    if loss_class is baselines.FullSoftmaxLoss:
        others, losses = scores, full_losses(scores, labels)
    else:
        others, losses = (
            scores[:, SAMPLED],
            sampled_softmax_losses(scores, labels),
        )
    assert accuracy == pytest.approx((own >= others.max(axis=1)).mean())
    assert perplexity == pytest.approx(np.exp(losses.mean()), rel=1e-4)
    assert coverage == (loss_class is baselines.FullSoftmaxLoss)


# Losses of sampled classes differ in what each device computes by itself.
@pytest.mark.parametrize(
    "loss_class", [baselines.FullSoftmaxLoss, baselines.BlackOutLoss]
)
def test_two_devices(strategy, loss_class):
    def layer():
        return make_layer(use_bias=False)

    kwargs = {"loss": loss_class(), "jit_compile": False}
    one, one_losses = fit(layer, **kwargs)
    two, two_losses = fit(layer, scope=strategy.scope(), **kwargs)
    np.testing.assert_allclose(one_losses, two_losses, rtol=1e-5)
    for a, b in zip(one.weights, two.weights, strict=True):
        # Adam divides sums in another order by their size.
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)
    for weight in two.layers[-1].weights:
        replicas = strategy.experimental_local_results(weight.value)
        np.testing.assert_array_equal(*replicas)


def test_tree_and_learned_noise():
    """Vectors that are sums over paths, and a noise that learns labels."""
    tree = ClassTree.random(NUM_CLASSES, branching=3, seed=0)
    noise = LearnedNoise(refresh_every=1, decay=1.0)
    model, losses = fit(
        lambda: make_layer(noise, selector=BeamTree(tree)),
        baselines.SampledSoftmaxLoss(num_sampled=6),
        epochs=3,
        jit_compile=False,
    )
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(noise.misses, 3 * counts())


@pytest.mark.parametrize("loss_class", REFERENCES)
def test_batches_of_any_size(loss_class):
    layer = make_layer(FixedNoise(counts()))
    layer.build((None, WIDTH))
    randomize(layer)
    check_any_size(layer, layer, loss_class())


def test_language_model_labels():
    """Labels of two axes, one of them padding."""
    layer = make_layer()
    features, labels = examples(20)
    features = features.reshape(5, 4, WIDTH)
    labels = labels.reshape(5, 4)
    labels[0, 1:] = -1
    for loss_class in REFERENCES:
        loss = loss_class(ignore_class=-1, reduction="none")
        losses = loss(labels, layer(features, training=True)).numpy()
        assert losses.shape == (5, 4)
        np.testing.assert_array_equal(losses[0, 1:], 0)
        assert (losses[1:] > 0).all()


def test_default_number_of_samples():
    drawn = []

    class Noise(UniformNoise):
        def sample(self, bits, excluded=None):
            drawn.append(bits.shape)
            return super().sample(bits, excluded)

    layer = make_layer(Noise())
    features, labels = examples(20)
    for number in (None, 5, 30):
        loss = baselines.NCELoss(num_sampled=number)
        assert np.isfinite(loss(labels, layer(features, training=True)))
    assert drawn == [(7,), (5,), (30,)]


@pytest.mark.parametrize("loss_class", SAMPLED_LOSSES)
def test_bad_arguments(loss_class):
    for number in (0, 2.5, True, "4"):
        with pytest.raises(
            ValueError, match="`num_sampled` must be a positive"
        ):
            loss_class(num_sampled=number)
    with pytest.raises(ValueError, match="`evaluation` must be one of"):
        loss_class(evaluation="other")
    for calibration in (-0.1, 1.1, True, "1"):
        with pytest.raises(ValueError, match="`calibration` must be a number"):
            baselines.GBCELoss(calibration=calibration)
    layer = baselines.HierarchicalSoftmax(ClassTree.random(NUM_CLASSES, 3))
    features, labels = examples(4)
    outputs = layer(features, training=True)
    with pytest.raises(
        ValueError,
        match=f"`{loss_class.__name__}` must be given the output of a "
        "`keras_compembed.CANESoftmax`.*HierarchicalSoftmax",
    ):
        loss_class()(labels, outputs)


def test_other_outputs():
    for loss_class in REFERENCES:
        model = build_model(keras.layers.Dense(NUM_CLASSES))
        with pytest.raises(ValueError, match="must be given the output of a"):
            loss_class()(tf.constant([1]), model(np.zeros((1, WIDTH))))
