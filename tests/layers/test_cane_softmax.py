import warnings

import cane_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import cane
from errors import refused

import keras_compembed as kc
from keras_compembed.classes.noise import UniformNoise

CLASSES, WIDTH = 60, 8
COUNTS = 1 + 600 // np.arange(1, CLASSES + 1)
# A class at each depth, and nodes of one to four children below them.
TREE = [[0, [1, 2], 3], 4, [[5, [6, 7]], [8, 9, 10, 11]]]


class Given(kc.classes.Selector):
    """The same candidates for all."""

    table = None

    def select(self, scores, features, context=None):
        return tf.constant(self.table, "int32")


class GivenInATree(kc.classes.BeamTree):
    select = Given.select


class GivenNoise(UniformNoise):
    drawn = None

    def sample(self, bits, excluded=None):
        return tf.constant(self.drawn)


def make_selector(name):
    if name == "subsets":
        return kc.classes.FrequencySubsets(COUNTS, num_subsets=4, seed=0)
    if name == "frequent":
        return kc.classes.FrequentClasses(COUNTS)
    tree = kc.classes.ClassTree.random(CLASSES, branching=4, seed=0)
    if name == "refreshed":
        return kc.classes.BeamTree(tree, refresh_every=4)
    return kc.classes.BeamTree(tree, max_frontier=10)


def make_head(selector="tree", **kwargs):
    kwargs = {"num_candidates": 6, "num_noises": 4, **kwargs}
    if "class_embedding" not in kwargs:
        normal = keras.initializers.RandomNormal(seed=0)
        kwargs.setdefault("kernel_initializer", normal)
    return cane(CLASSES, selector=make_selector(selector), **kwargs)


def features_of(rows, seed=0, width=WIDTH):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)).astype("float32")


def labels_of(rows, seed=1):
    return np.random.default_rng(seed).integers(CLASSES, size=rows)


@pytest.mark.parametrize(
    ("label", "candidates", "noises", "jit_compile"),
    [
        (6, [5, 6, 7], [8, 0], False),
        (9, [5, 6], [3, 3], False),
        pytest.param(6, [5, 6, 7], [8, 0], True, marks=pytest.mark.apart),
    ],
)
def test_algorithm_2(label, candidates, noises, jit_compile):
    """Gradients of edges by equations 10 and 11, and Proposition 1."""
    classes = 12
    paths = reference.paths(TREE)
    names = [[str(place) for place in paths[k][-1]] for k in range(classes)]
    tree = kc.classes.ClassTree.from_taxonomy(names)
    selector, noise = GivenInATree(tree), GivenNoise()
    selector.table, noise.drawn = [candidates], [noises]
    kwargs = {"num_candidates": len(candidates), "num_noises": len(noises)}
    kwargs |= {"estimate": "separate", "use_bias": False}
    head = cane(classes, WIDTH, selector=selector, noise=noise, **kwargs)
    x = features_of(1)

    def step(x):
        with tf.GradientTape() as tape:
            loss = kc.CANELoss()(np.array([label]), head(x, training=True))
        sources = [head.kernel.value, head.nodes.value]
        gradients = tape.gradient(loss, sources)
        return [tf.convert_to_tensor(part) for part in gradients]

    if jit_compile:
        step = tf.function(step, jit_compile=True)
    kernel, nodes = step(tf.constant(x))
    edges, rows = edges_of(head, tree)
    q = reference.outside(np.ones(classes), candidates)
    expected = reference.edge_gradients(
        TREE, edges, x[0].astype("float64"), label, candidates, noises, q
    )
    touched_nodes, touched_classes = set(), set()
    for edge, gradient in expected.items():
        kind, row = rows[edge]
        got = (kernel if kind == "class" else nodes)[row]
        np.testing.assert_allclose(-got, gradient, rtol=1e-4, atol=1e-5)
        (touched_classes if kind == "class" else touched_nodes).add(row)
    for table, touched in [
        (kernel, touched_classes),
        (nodes, touched_nodes),
    ]:
        others = np.delete(table, list(touched), axis=0)
        np.testing.assert_array_equal(others, 0)


def edges_of(head, tree):
    """Parameters of the edges of `TREE`, and the rows they are in."""
    nodes, edges, rows = {}, {}, {}
    paths = tree.paths()
    for k, found in reference.paths(TREE).items():
        above = [node for node in paths[k] if node >= 0]
        for edge, node in zip(found[:-1], above, strict=True):
            nodes[edge] = node
        edges[found[-1]] = head.kernel.numpy()[k].astype("float64")
        rows[found[-1]] = "class", k
    for edge, node in nodes.items():
        edges[edge] = head.nodes.numpy()[node].astype("float64")
        rows[edge] = "node", node
    return edges, rows


@pytest.mark.parametrize("estimate", ["joint", "separate"])
def test_estimate_tends_to_that_of_the_softmax(estimate):
    """Theorem 2, with too few candidates and by stochastic gradients."""
    classes, counts = 6, np.array([40, 25, 15, 10, 7, 3])
    labels = np.repeat(np.arange(classes), 100 * counts)
    np.random.default_rng(0).shuffle(labels)
    x = np.ones((len(labels), 1), "float32")
    selector = Given()
    selector.table = [2, 3]
    kwargs = {"num_candidates": 2, "num_noises": 2, "use_bias": False}
    head = cane(classes, selector=selector, estimate=estimate, **kwargs)
    model = keras.Sequential([keras.Input((1,)), head])
    rate = keras.optimizers.schedules.PolynomialDecay(1.0, 6 * 40, 0.01)
    model.compile(keras.optimizers.SGD(rate), kc.CANELoss(), jit_compile=False)
    model.fit(x, labels, batch_size=250, epochs=6, verbose=0)
    found = tf.nn.softmax(head.kernel.numpy()[:, 0])
    # Equal to the maximum-likelihood estimate but for noise of the draws.
    np.testing.assert_allclose(found, counts / 100, atol=0.02)


def test_only_rows_drawn_change():
    head = make_head("frequent", noise="learned")
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    optimizer = kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.1))
    model.compile(optimizer, kc.CANELoss(), run_eagerly=True)
    model.fit(features_of(4), labels_of(4), batch_size=4, verbose=0)
    before = head.kernel.numpy()
    # Moments that are not zero now must not move other rows.
    y = np.zeros(4, "int32")
    model.fit(features_of(4), y, batch_size=4, verbose=0)
    changed = (head.kernel.numpy() != before).any(axis=1)
    frequent = set(head.selector.classes.numpy())
    assert frequent <= set(np.flatnonzero(changed))
    assert changed.sum() <= 6 + 4 * 4 < CLASSES / 2


def test_noises_follow_class_counts():
    counts = np.where(np.arange(CLASSES) < 50, COUNTS, 0)
    head = make_head(class_counts=counts)
    head.build((None, WIDTH))
    q = np.maximum(counts, 0.5) ** 0.75
    log_q = head.noise.log_prob(tf.range(CLASSES))
    np.testing.assert_allclose(log_q, np.log(q / q.sum()), rtol=1e-5)
    assert isinstance(make_head().noise, UniformNoise)


def test_too_few_classes_train_the_full_softmax():
    with pytest.warns(UserWarning, match=r"trains a full softmax.*60"):
        head = make_head(num_candidates=40, num_noises=20)
    x, y = features_of(16), labels_of(16)
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    before = model.evaluate(x, y, batch_size=16, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = model.fit(x, y, batch_size=16, verbose=0).history["loss"]
    np.testing.assert_allclose(loss[0], before, rtol=1e-5)
    assert model.evaluate(x, y, verbose=0) < before


@pytest.mark.parametrize(
    ("selector", "loss", "lists"),
    [
        ("frequent", kc.CANELoss("sampled"), False),
        ("subsets", kc.CANELoss(), True),
        ("refreshed", kc.CANELoss(), False),
    ],
)
def test_validation_changes_no_training(selector, loss, lists):
    x, y = features_of(64), labels_of(64)
    if lists:
        y = np.stack([y, labels_of(64, seed=2)], axis=1)
    results = []
    for data in (None, (x[:40], y[:40])):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((WIDTH,)), make_head(selector)])
        metrics = [kc.Coverage()]
        model.compile("sgd", loss, metrics=metrics, run_eagerly=True)
        if data:
            first = model.evaluate(*data, batch_size=16, verbose=0)
            assert model.evaluate(*data, batch_size=16, verbose=0) == first
        model.fit(
            x,
            y,
            batch_size=16,
            epochs=2,
            shuffle=False,
            validation_data=data,
            verbose=0,
        )
        results.append([v.numpy() for v in model.variables])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "value", "received"),
    [
        ("num_classes", 1, 1),
        ("class_counts", [1, 2], 2),
        ("class_counts", np.full(60, -1), None),
        ("class_embedding", "x", None),
        ("class_embedding", kc.ANTEmbedding(50, 4, num_anchors=3), 50),
        ("kernel_initializer", "zeros", "zeros"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_arguments(name, value, received):
    kwargs = {"num_classes": CLASSES, name: value}
    if name == "kernel_initializer":
        kwargs["class_embedding"] = kc.ANTEmbedding(60, 4, num_anchors=3)
    with refused(received=received):
        kc.CANESoftmax(**kwargs)
    layer = kc.ANTEmbedding(CLASSES, 4, num_anchors=3)
    with pytest.raises(ValueError, match="as wide as the features, 8"):
        make_head(class_embedding=layer).build((None, WIDTH))
    with refused("k", 61):
        make_head().top_k(features_of(1), k=61)


@pytest.mark.parametrize(
    ("layer", "change", "received"),
    [
        (
            keras.layers.Embedding,
            lambda table: table.enable_lora(4),
            "lora_rank=4",
        ),
        (
            keras.layers.ReversibleEmbedding,
            lambda table: table.quantize("int8"),
            "quantization_mode='int8'",
        ),
    ],
)
def test_tied_tables_that_change(layer, change, received, tmp_path):
    """They are no longer what the head scores by."""
    table = layer(CLASSES, WIDTH)
    x, y = np.arange(12).reshape(4, 3), labels_of(4)
    head = make_head(class_embedding=table)
    inputs = keras.Input((3,), dtype="int32")
    features = keras.layers.GlobalAveragePooling1D()(table(inputs))
    model = keras.Model(inputs, head(features))
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    model.fit(x, y, verbose=0)
    with warnings.catch_warnings():
        # Of Keras, on arrays.
        warnings.simplefilter("ignore")
        change(table)
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    for act in (
        lambda: model.fit(x, y, verbose=0),
        lambda: model.evaluate(x, y, verbose=0),
        lambda: head.top_k(features_of(2)),
        lambda: model.save(tmp_path / "model.keras"),
        lambda: make_head(class_embedding=table),
    ):
        with refused("class_embedding", received):
            act()


def test_parts_of_two_layers():
    noise = kc.classes.UnigramNoise(COUNTS)
    cane(CLASSES, noise=noise)
    with refused(received=noise.name):
        cane(CLASSES, noise=noise)
    cane(CLASSES, WIDTH, noise=noise.from_config(noise.get_config()))


def test_masked_steps_and_weights_do_not_count():
    rng = np.random.default_rng(0)
    x = rng.integers(1, CLASSES, size=(12, 5))
    y = rng.integers(CLASSES, size=(12, 5))
    x[:, 3:] = 0
    # What is masked may have labels that are no classes.
    y[:, 3:] = -1
    weight = rng.random((12, 5))
    results = []
    for labels in (y, np.where(x == 0, 7, y)):
        keras.utils.set_random_seed(0)
        embedding = keras.layers.Embedding(CLASSES, WIDTH, mask_zero=True)
        inputs = keras.Input((5,), dtype="int32")
        model = keras.Sequential([inputs, embedding, make_head()])
        model.compile("adam", kc.CANELoss(), run_eagerly=True)
        loss = model.fit(x, labels, sample_weight=weight, verbose=0)
        results.append((loss.history["loss"], *model.get_weights()))
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-7)

    losses, _ = model.layers[-1].exact(
        tf.reshape(model(x), (-1, WIDTH)), np.maximum(y, 0).reshape(-1)
    )
    counted = weight * (x != 0)
    expected = np.sum(losses * counted.reshape(-1)) / np.sum(x != 0)
    loss = model.evaluate(x, y, sample_weight=weight, verbose=0)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
