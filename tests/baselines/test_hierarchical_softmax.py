import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import BATCH_SIZE
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import build_model
from class_models import check_exact
from class_models import check_files
from class_models import counts
from class_models import examples
from class_models import fit
from class_models import loss_and_gradients
from class_models import numerical_gradient
from class_models import randomize

import keras_compembed as kc
from keras_compembed.baselines import FullSoftmaxLoss
from keras_compembed.baselines import HierarchicalSoftmax
from keras_compembed.baselines import probability_head
from keras_compembed.trees import ClassTree

TREES = {
    "random": ClassTree.random(NUM_CLASSES, branching=3, seed=0),
    "huffman": ClassTree.from_frequencies(counts()),
    "groups": ClassTree.from_groups(np.arange(NUM_CLASSES) % 5),
    "flat": ClassTree(np.arange(NUM_CLASSES)[None], NUM_CLASSES),
}


def log_probabilities(tree, kernel, bias, features):
    """All of them, from the root down, one node at a time."""
    scores = features @ kernel.T + bias[:, 0]
    found = np.empty_like(scores)

    def visit(row, above):
        children = tree.children[row]
        children = children[children >= 0]
        of_children = scores[:, children]
        total = np.log(np.exp(of_children).sum(axis=1, keepdims=True))
        for child in children:
            found[:, child] = above + scores[:, child] - total[:, 0]
            if child < tree.num_nodes:
                visit(1 + child, found[:, child])

    visit(0, 0.0)
    return found[:, tree.num_nodes :]


def weights_of(layer):
    return [
        weight.numpy().astype("float64") for weight in layer.trainable_weights
    ]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", TREES)
def test_loss_and_gradients(name, jit_compile):
    tree = TREES[name]
    layer = HierarchicalSoftmax(tree)
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples(20)

    def reference(features, kernel, bias):
        scores = log_probabilities(tree, kernel, bias, features)
        return -scores[np.arange(len(labels)), labels].mean()

    arrays = features.astype("float64"), *weights_of(layer)
    value, gradients = loss_and_gradients(
        layer, FullSoftmaxLoss(), features, labels, jit_compile
    )
    assert float(value) == pytest.approx(reference(*arrays), rel=1e-5)
    expected = numerical_gradient(reference, *arrays)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TREES)
def test_fit(name, tmp_path):
    tree = TREES[name]
    model, losses = fit(
        lambda: HierarchicalSoftmax(tree, class_counts=counts()),
        FullSoftmaxLoss(),
        epochs=10,
        # Gradients of all trees are compared under XLA above.
        jit_compile=name == "groups",
    )
    shares = counts() / counts().sum()
    unigram = -(shares * np.log(np.maximum(shares, 1e-9))).sum()
    assert losses[-1] < 0.6 * losses[0] < 0.6 * 1.2 * unigram
    layer = model.layers[-1]
    check_exact(
        model,
        lambda features: log_probabilities(tree, *weights_of(layer), features),
    )
    check_files(model, tmp_path / "model.keras")


def test_gradients_of_touched_rows_only():
    tree = TREES["random"]
    layer = HierarchicalSoftmax(tree)
    layer.build((None, WIDTH))
    randomize(layer)
    before = layer.kernel.numpy()
    features, _ = examples(2)
    with tf.GradientTape() as tape:
        losses, _ = layer.choices(tf.constant(features), tf.constant([4, 4]))
    gradient = tape.gradient(losses, layer.kernel.value)
    assert isinstance(gradient, tf.IndexedSlices)
    keras.optimizers.SGD(0.1).apply([gradient], [layer.kernel])
    moved = np.flatnonzero((layer.kernel.numpy() != before).any(axis=1))
    nodes = [node for node in tree.paths()[4] if node >= 0]
    wanted = tree.children[[0, *(1 + node for node in nodes)]]
    np.testing.assert_array_equal(moved, np.unique(wanted[wanted >= 0]))


def test_metrics_of_training():
    tree = TREES["random"]
    layer = HierarchicalSoftmax(tree)
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples(40)
    outputs = layer(features, training=True)
    metrics = [kc.ClassAccuracy(), kc.Perplexity(), kc.Coverage()]
    for metric in metrics:
        metric.update_state(labels, outputs)
    accuracy, perplexity, coverage = (float(m.result()) for m in metrics)
    scores = features @ layer.kernel.numpy().T + layer.bias.numpy()[:, 0]
    reached = []
    for row in scores:
        node = -1
        while node < tree.num_nodes:
            children = tree.children[1 + node]
            children = children[children >= 0]
            node = children[np.argmax(row[children])]
        reached.append(node - tree.num_nodes)
    assert 0 < accuracy == pytest.approx((np.array(reached) == labels).mean())
    value = FullSoftmaxLoss()(labels, outputs)
    assert perplexity == pytest.approx(np.exp(float(value)), rel=1e-5)
    assert coverage == 1


def test_starts_at_frequencies():
    some = np.array([90, 0, 5, 1])
    tree = ClassTree.from_frequencies(some)
    layer = HierarchicalSoftmax(tree, class_counts=some)
    layer.build((None, 3))
    # Features of zeros: biases alone.
    ids, probabilities = layer.top_k(np.zeros((2, 5, 3), "float32"), k=4)
    assert ids.shape == probabilities.shape == (2, 5, 4)
    expected = np.array([90, 0.5, 5, 1]) / 96.5
    np.testing.assert_array_equal(ids[1, 3], [0, 2, 3, 1])
    np.testing.assert_allclose(
        probabilities[0, 0], expected[[0, 2, 3, 1]], rtol=1e-5
    )


def test_many_rows_in_parts(monkeypatch):
    layer = HierarchicalSoftmax(TREES["random"])
    features, labels = (tf.constant(array) for array in examples(50))
    expected = layer.top_k(features, k=3)
    losses, ranks = layer.exact(features, labels)
    monkeypatch.setattr(probability_head, "_PART_NUMBERS", 7 * NUM_CLASSES)
    for jit_compile in (False, True):
        for a, b in zip(
            tf.function(layer.top_k, jit_compile=jit_compile)(features, k=3),
            expected,
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        found = tf.function(layer.exact, jit_compile=jit_compile)(
            features, labels
        )
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        np.testing.assert_array_equal(found[1], ranks)
    empty = layer.exact(features[:0], labels[:0])
    assert empty[0].shape == empty[1].shape == (0,)


def test_nan_is_no_class():
    layer = HierarchicalSoftmax(TREES["random"])
    features = np.zeros((2, WIDTH), "float32")
    features[1] = np.nan
    ids, probabilities = layer.top_k(features, k=2)
    assert (ids.numpy()[0] >= 0).all()
    np.testing.assert_array_equal(ids[1], -1)
    np.testing.assert_array_equal(probabilities[1], 0)


def test_two_devices(strategy):
    def make_layer():
        return HierarchicalSoftmax(
            TREES["random"],
            kernel_initializer=keras.initializers.RandomNormal(seed=0),
        )

    kwargs = {"loss": FullSoftmaxLoss(), "jit_compile": False}
    one, one_losses = fit(make_layer, **kwargs)
    two, two_losses = fit(make_layer, scope=strategy.scope(), **kwargs)
    np.testing.assert_allclose(one_losses, two_losses, rtol=1e-5)
    for a, b in zip(one.weights, two.weights, strict=True):
        # Adam divides sums in another order by their size.
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)
    results = [
        each.evaluate(*examples(), batch_size=BATCH_SIZE, verbose=0)
        for each in (one, two)
    ]
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_bad_arguments():
    for tree in (None, 3, np.zeros((2, 2))):
        with pytest.raises(ValueError, match="`tree` must be a .*ClassTree"):
            HierarchicalSoftmax(tree)
    tree = TREES["random"]
    with pytest.raises(ValueError, match="`class_counts` must have one entry"):
        HierarchicalSoftmax(tree, class_counts=[1, 2])
    with pytest.raises(ValueError, match="`class_counts` must be finite"):
        HierarchicalSoftmax(tree, class_counts=-counts())
    layer = HierarchicalSoftmax(tree)
    for k in (0, NUM_CLASSES + 1, 1.5):
        with pytest.raises(ValueError, match="`k` must be an integer from 1"):
            layer.top_k(np.zeros((1, WIDTH), "float32"), k=k)
    model = build_model(layer)
    model.compile("adam", FullSoftmaxLoss(), jit_compile=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 11"):
        model.fit(np.zeros((1, WIDTH)), np.array([12]), verbose=0)
