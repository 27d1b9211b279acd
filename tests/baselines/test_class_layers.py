"""Layers that give probabilities of all classes by way of fewer choices."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import build_model
from class_models import check_equal
from class_models import check_exact
from class_models import check_files
from class_models import counts
from class_models import examples
from class_models import fit
from class_models import loss_and_gradients
from class_models import randomize
from errors import refused

import keras_compembed as kc
from keras_compembed.baselines import AdaptiveSoftmax
from keras_compembed.baselines import FullSoftmaxLoss
from keras_compembed.baselines import HierarchicalSoftmax
from keras_compembed.trees import ClassTree

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


@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [
        *((name, False) for name in LAYERS if name != "huffman"),
        pytest.param("random", True, marks=pytest.mark.apart),
    ],
)
def test_loss_and_gradients(name, jit_compile):
    layer = random_layer(name)
    features, labels = examples(6)

    def reference(features, *weights):
        scores = log_probabilities(layer, weights, features)
        return -scores[np.arange(len(labels)), labels].mean()

    arrays = features.astype("float64"), *weights_of(layer)
    value, gradients = loss_and_gradients(
        layer, FullSoftmaxLoss(), features, labels, jit_compile
    )
    check_equal(value, gradients, reference, arrays)


@pytest.mark.parametrize("name", LAYERS)
def test_probabilities_of_all_classes(name):
    layer = random_layer(name)
    model = build_model(layer)
    model.compile("sgd", FullSoftmaxLoss(), run_eagerly=True)
    check_exact(
        model,
        lambda features: log_probabilities(layer, weights_of(layer), features),
    )


def test_fit(tmp_path):
    model, losses = fit(
        LAYERS["groups"], FullSoftmaxLoss(), epochs=10, jit_compile=False
    )
    assert losses[-1] < 0.7 * losses[0]
    check_files(model, tmp_path / "model.keras")


def test_metrics_of_training():
    layer, tree = random_layer("random"), TREES["random"]
    features, labels = examples(40)
    outputs = layer(features, training=True)
    metrics = [kc.ClassAccuracy(), kc.Perplexity(), kc.Coverage()]
    for metric in metrics:
        metric.update_state(labels, outputs)
    accuracy, perplexity, coverage = (float(m.result()) for m in metrics)
    right = []
    scores = features @ layer.kernel.numpy().T + layer.bias.numpy()[:, 0]
    for row, label in zip(scores, labels, strict=True):
        # The best choice, again and again.
        node = -1
        while node < tree.num_nodes:
            children = tree.children[1 + node]
            children = children[children >= 0]
            node = children[np.argmax(row[children])]
        right.append(node - tree.num_nodes == label)
    assert 0 < accuracy == pytest.approx(np.mean(right))
    value = FullSoftmaxLoss()(labels, outputs)
    assert perplexity == pytest.approx(np.exp(float(value)), rel=1e-5)
    assert coverage == 1


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


@pytest.mark.parametrize(
    ("arguments", "argument", "received"),
    [
        *(
            ((NUM_CLASSES, cutoffs), "cutoffs", cutoffs)
            for cutoffs in (
                *([], [0], [12], [4, 4], [8, 4], [1.5], ["a"], 4, None),
                [True],
            )
        ),
        ((NUM_CLASSES, [4], 0.5), "factor", 0.5),
        ((NUM_CLASSES, [4], "2"), "factor", "2"),
        ((NUM_CLASSES, [4], 2, [1, 2]), "class_counts", None),
        ((1, [1]), "num_classes", 1),
    ],
)
def test_bad_clusters(arguments, argument, received):
    with refused(argument, received):
        AdaptiveSoftmax(*arguments)


def test_bad_trees():
    for tree in (None, 3, np.zeros((2, 2))):
        with refused("tree"):
            HierarchicalSoftmax(tree)
    for some in ([1, 2], -counts()):
        with refused("class_counts"):
            HierarchicalSoftmax(TREES["random"], class_counts=some)
    layer = HierarchicalSoftmax(TREES["random"])
    for k in (0, NUM_CLASSES + 1, 1.5):
        with refused("k", k):
            layer.top_k(np.zeros((1, WIDTH), "float32"), k=k)
    model = build_model(layer)
    model.compile("adam", FullSoftmaxLoss(), run_eagerly=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 11"):
        model.fit(np.zeros((1, WIDTH)), np.array([12]), verbose=0)
