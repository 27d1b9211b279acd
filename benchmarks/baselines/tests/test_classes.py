"""Losses and layers of classes, against NumPy."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import FirstClasses
from class_models import build_model
from class_models import check_equal
from class_models import counts
from class_models import examples
from class_models import log_sum_exp
from class_models import loss_and_gradients
from class_models import own
from class_models import randomize
from class_models import shares_of_noise

import keras_compembed as kc
from benchmarks.baselines import AdaptiveSoftmax
from benchmarks.baselines import BlackOutLoss
from benchmarks.baselines import FullSoftmaxLoss
from benchmarks.baselines import GBCELoss
from benchmarks.baselines import HierarchicalSoftmax
from benchmarks.baselines import RECELoss
from benchmarks.baselines import SCELoss
from keras_compembed.classes import ClassTree

ROWS = 20
# Some twice, and some of them labels.
SAMPLED = np.array([3, 0, 7, 7, 1, 10, 0], "int32")


class FixedNoise(kc.classes.UnigramNoise):
    """Always draws the same."""

    def sample(self, bits, excluded=None):
        return tf.constant(SAMPLED)


def full(scores, labels):
    return log_sum_exp(scores) - own(scores, labels)


def blackout(scores, labels):
    scores = scores - np.log(len(SAMPLED) * shares_of_noise())
    others = np.where(labels[:, None] == SAMPLED, -np.inf, scores[:, SAMPLED])
    weights = np.exp(np.column_stack([own(scores, labels), others]))
    p = weights / weights.sum(axis=1, keepdims=True)
    return -np.log(p[:, 0]) - np.log(1 - p[:, 1:]).sum(axis=1)


def gbce(scores, labels):
    """As the paper has it, of scores as they are."""
    positive = 1 / (1 + np.exp(-own(scores, labels)))
    negative = 1 / (1 + np.exp(-scores[:, SAMPLED]))
    negative = np.where(labels[:, None] == SAMPLED, 0, negative)
    share, t = len(SAMPLED) / (NUM_CLASSES - 1), 0.75
    beta = share * (t * (1 - 1 / share) + 1 / share)
    logs = np.log(positive**beta) + np.log(1 - negative).sum(axis=1)
    return -logs / (len(SAMPLED) + 1)


def among(scores, labels, near):
    """Cross-entropies of labels among classes of a mask, and themselves."""
    near[np.arange(len(labels)), labels] = True
    return log_sum_exp(np.where(near, scores, -np.inf)) - own(scores, labels)


def normal(*shape):
    """What a layer with the seed 0 draws first."""
    seed = tf.cast(keras.random.SeedGenerator(0).next(), "int32")
    return tf.random.stateless_normal(shape, seed).numpy().astype("float64")


def in_buckets(features, labels, kernel, bias, mix=False):
    """SCE: the largest loss of each example; NaN of one in no bucket."""
    rows, width = features.shape
    directions = normal(3, rows if mix else width)
    if mix:
        directions = directions @ features
    scores = features @ kernel.T + bias
    losses = np.full((len(directions), rows), np.nan)
    for bucket, direction in enumerate(directions):
        near = np.zeros(scores.shape, bool)
        near[:, np.argsort(-kernel @ direction)[:5]] = True
        placed = np.argsort(-features @ direction)[:6]
        found = among(scores, labels, near)
        losses[bucket, placed] = found[placed]
    return np.fmax.reduce(losses)


def chunks_of(vectors, directions, number):
    """The chunk of each vector, in one round."""
    order = np.argsort((vectors @ directions.T).argmax(axis=1), kind="stable")
    chunks = np.empty(len(vectors), "int64")
    for chunk in range(number):
        start = chunk * len(vectors) // number
        stop = (chunk + 1) * len(vectors) // number
        chunks[order[start:stop]] = chunk
    return chunks


def in_chunks(features, labels, kernel, bias, number=4, extra=0, rounds=1):
    """RECE."""
    near = False
    for directions in normal(rounds, 5, features.shape[1]):
        of_rows = chunks_of(features, directions, number)
        of_classes = chunks_of(kernel, directions, number)
        near |= abs(of_rows[:, None] - of_classes) <= extra
    return among(features @ kernel.T + bias, labels, near)


def of_scores(function):
    def losses(features, labels, kernel, bias):
        return function(features @ kernel.T + bias, labels)

    return losses


LOSSES = {
    "full": (FullSoftmaxLoss, of_scores(full)),
    "blackout": (BlackOutLoss, of_scores(blackout)),
    "gbce": (GBCELoss, of_scores(gbce)),
    "sce": (functools.partial(SCELoss, 3, 6, 5, mix=False), in_buckets),
    "sce_mix": (
        functools.partial(SCELoss, 3, 6, 5),
        functools.partial(in_buckets, mix=True),
    ),
    "rece": (functools.partial(RECELoss, 5, 4, num_extra_chunks=0), in_chunks),
    "rece_rounds": (
        functools.partial(RECELoss, 5, num_rounds=3),
        functools.partial(in_chunks, number=5, extra=1, rounds=3),
    ),
}


def sampling_layer():
    layer = kc.CANESoftmax(
        NUM_CLASSES,
        sampling=kc.Sampling(
            FirstClasses(),
            num_candidates=3,
            noise=FixedNoise(counts()),
            num_noises=4,
        ),
        class_counts=counts(),
        seed=0,
    )
    layer.build((None, WIDTH))
    randomize(layer)
    return layer


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients(name):
    make_loss, losses = LOSSES[name]
    layer = sampling_layer()
    features, labels = examples(ROWS)

    def reference(features, kernel, bias):
        # Of SCE, some are in several buckets and some in none.
        return np.nanmean(losses(features, labels, kernel, bias))

    arrays = features, layer.kernel.numpy(), layer.bias.numpy()
    arrays = [array.astype("float64") for array in arrays]
    value, gradients = loss_and_gradients(layer, make_loss(), features, labels)
    check_equal(value, gradients, reference, arrays)


@pytest.mark.parametrize(
    "loss",
    # With all classes in each bucket or chunk.
    [SCELoss(2, 1000, 1000), RECELoss(7, num_extra_chunks=6, num_rounds=2)],
)
def test_over_all_classes_it_is_the_full_softmax(loss):
    layer = sampling_layer()
    features, labels = examples(ROWS)
    found = [
        each(labels, layer(features, training=True))
        for each in (loss, FullSoftmaxLoss())
    ]
    np.testing.assert_allclose(*found, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "sce_mix"])
def test_examples_left_out(name):
    """What a mask leaves out changes nothing for the others."""
    make_loss = LOSSES[name][0]
    features, labels = examples(ROWS)
    counted = np.arange(ROWS) % 3 > 0
    wild = np.where(counted[:, None], features, 100).astype("float32")
    wanted = make_loss(reduction="none")(
        labels[counted], sampling_layer()(features[counted], training=True)
    )
    losses = make_loss(ignore_class=-1, reduction="none")(
        np.where(counted, labels, -1), sampling_layer()(wild, training=True)
    ).numpy()
    np.testing.assert_array_equal(losses[~counted], 0)
    np.testing.assert_allclose(losses[counted], wanted, rtol=1e-5, atol=1e-6)


TREES = {
    "random": ClassTree.random(NUM_CLASSES, branching=3, seed=0),
    "huffman": ClassTree.from_frequencies(counts()),
    "groups": ClassTree.from_groups(np.arange(NUM_CLASSES) % 5),
    "flat": ClassTree(np.arange(NUM_CLASSES)[None], NUM_CLASSES),
}
LAYERS = {
    **{
        name: functools.partial(HierarchicalSoftmax, tree)
        for name, tree in TREES.items()
    },
    "clusters": lambda: AdaptiveSoftmax(NUM_CLASSES, [3, 7], factor=1.5),
    "tiny clusters": lambda: AdaptiveSoftmax(
        NUM_CLASSES, (1, 4, 5, 11), factor=1.5, class_counts=counts()[::-1]
    ),
}


def log_softmax(scores):
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def of_tree(tree, weights, features):
    """From the root down, one node at a time."""
    kernel, bias = weights
    scores = features @ kernel.T + bias[:, 0]
    found = np.empty_like(scores)

    def visit(row, above):
        children = tree.children[row]
        children = children[children >= 0]
        choices = above + log_softmax(scores[:, children])
        for place, child in enumerate(children):
            found[:, child] = choices[:, place]
            if child < tree.num_nodes:
                visit(1 + child, choices[:, [place]])

    visit(0, 0.0)
    return found[:, tree.num_nodes :]


def of_clusters(layer, weights, features):
    """Cluster by cluster."""
    names = [weight.name for weight in layer.trainable_weights]
    weights = dict(zip(names, weights, strict=True))
    head = log_softmax(features @ weights["kernel_0"].T + weights["bias_0"])
    first = layer.cutoffs[0]
    parts = [head[:, :first]]
    for i in range(1, len(layer.cutoffs) + 1):
        narrow = features @ weights[f"projection_{i}"]
        scores = narrow @ weights[f"kernel_{i}"].T + weights[f"bias_{i}"]
        parts.append(log_softmax(scores) + head[:, [first + i - 1]])
    return np.concatenate(parts, axis=1)[:, layer.places.numpy()]


def log_probabilities(layer, weights, features):
    if isinstance(layer, AdaptiveSoftmax):
        return of_clusters(layer, weights, features)
    return of_tree(layer.tree, weights, features)


def weights_of(layer):
    return [
        weight.numpy().astype("float64") for weight in layer.trainable_weights
    ]


def random_layer(name):
    layer = LAYERS[name]()
    layer.build((None, WIDTH))
    randomize(layer)
    return layer


def check_exact(model, log_probabilities):
    """Evaluation and predictions are by the probabilities of all classes.

    `log_probabilities` is a function of features.
    """
    inputs, labels = examples()
    layer = model.layers[-1]
    features = model.layers[0](inputs).numpy().astype("float64")
    scores = log_probabilities(features)
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1, rtol=1e-5)
    own = scores[np.arange(len(labels)), labels]
    losses, ranks = layer.exact(
        tf.constant(features, "float32"), tf.constant(labels)
    )
    np.testing.assert_allclose(losses, -own, rtol=1e-4, atol=1e-5)
    expected = (scores > own[:, None]).sum(axis=1)
    np.testing.assert_array_equal(ranks, expected)
    assert ranks.dtype == tf.int32
    result = model.evaluate(inputs, labels, verbose=0)
    np.testing.assert_allclose(np.ravel(result)[0], -own.mean(), rtol=1e-4)
    ids, probabilities = layer.top_k(features.astype("float32"), k=5)
    best = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(ids, best)
    np.testing.assert_allclose(
        probabilities,
        np.exp(np.take_along_axis(scores, best, axis=1)),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_classes(name):
    layer = random_layer(name)
    features, labels = examples(6)

    def reference(features, *weights):
        scores = log_probabilities(layer, weights, features)
        return -scores[np.arange(len(labels)), labels].mean()

    arrays = features.astype("float64"), *weights_of(layer)
    value, gradients = loss_and_gradients(
        layer, FullSoftmaxLoss(), features, labels
    )
    check_equal(value, gradients, reference, arrays)
    model = build_model(layer)
    model.compile("sgd", FullSoftmaxLoss(), run_eagerly=True)
    check_exact(
        model,
        lambda features: log_probabilities(layer, weights_of(layer), features),
    )


SOME = np.array([1, 90, 0, 5, 20, 3])


@pytest.mark.parametrize(
    "layer",
    [
        AdaptiveSoftmax(6, [2, 4], class_counts=SOME),
        HierarchicalSoftmax(
            ClassTree.from_frequencies(SOME), class_counts=SOME
        ),
    ],
)
def test_starts_at_frequencies(layer):
    layer.build((None, 3))
    # Features of zeros: biases alone.
    ids, probabilities = layer.top_k(np.zeros((2, 5, 3), "float32"), k=6)
    assert ids.shape == probabilities.shape == (2, 5, 6)
    np.testing.assert_array_equal(ids[1, 3], [1, 4, 3, 5, 0, 2])
    expected = np.array([90, 20, 5, 3, 1, 0.5])
    np.testing.assert_allclose(
        probabilities[0, 0], expected / expected.sum(), rtol=1e-5
    )
