import json
import warnings

import cane_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_config
from layer_checks import check_functions

from keras_compembed import ANTEmbedding
from keras_compembed import CANELoss
from keras_compembed import CANESoftmax
from keras_compembed import ClassAccuracy
from keras_compembed import CodeEmbedding
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequencySubsets
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import Selector
from keras_compembed.layers.class_head import ClassOutput
from keras_compembed.noises import LearnedNoise
from keras_compembed.noises import UniformNoise
from keras_compembed.noises import UnigramNoise
from keras_compembed.optimizers import SparseRowOptimizer
from keras_compembed.trees import ClassTree

CLASSES, WIDTH = 60, 8
COUNTS = 1 + 600 // np.arange(1, CLASSES + 1)
# A class at each depth, and nodes of one to four children below them.
TREE = [[0, [1, 2], 3], 4, [[5, [6, 7]], [8, 9, 10, 11]]]


@keras.saving.register_keras_serializable(package="tests")
class Given(Selector):
    """Candidates from a table by the order of examples."""

    table = None

    def select(self, scores, features, context=None):
        return tf.constant(self.table, "int32")


def taxonomy(tree):
    """Names of the nodes on the way to each class of nested lists."""
    names = {}

    def visit(node, path):
        if isinstance(node, list):
            for place, child in enumerate(node):
                visit(child, (*path, str(place)))
        else:
            names[node] = path

    visit(tree, ())
    return [names[k] for k in range(len(names))]


def random_tree():
    return ClassTree.random(CLASSES, branching=4, seed=0)


def make_selector(name):
    return {
        "tree": lambda: BeamTree(random_tree(), max_frontier=10),
        "huffman": lambda: BeamTree(
            ClassTree.from_frequencies(COUNTS, branching=3), max_frontier=10
        ),
        "subsets": lambda: FrequencySubsets(COUNTS, num_subsets=4, seed=0),
        "frequent": lambda: FrequentClasses(COUNTS),
    }[name]()


def make_head(selector="tree", **kwargs):
    kwargs = {
        "num_candidates": 6,
        "num_noises": 4,
        "seed": 0,
        **kwargs,
    }
    if "class_embedding" not in kwargs:
        normal = keras.initializers.RandomNormal(seed=0)
        kwargs.setdefault("kernel_initializer", normal)
    return CANESoftmax(CLASSES, make_selector(selector), **kwargs)


def features_of(rows, seed=0, width=WIDTH):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)).astype("float32")


def labels_of(rows, seed=1):
    return np.random.default_rng(seed).integers(CLASSES, size=rows)


def randomize(head, seed=2):
    """Weights that no part of a score can be left out of unnoticed."""
    rng = np.random.default_rng(seed)
    for weight in head.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))


def table_of(head):
    """Vectors and biases of all classes in NumPy, by the paths of the tree."""
    kernel = head.kernel.numpy().astype("float64")
    bias = np.zeros(len(kernel))
    if head.bias is not None:
        bias = bias + head.bias.numpy()
    if head.nodes is not None:
        paths = head.selector.tree.class_tree.paths()
        for path, row, place in zip(
            paths, kernel, range(len(bias)), strict=True
        ):
            nodes = path[path >= 0]
            row += head.nodes.numpy()[nodes].sum(axis=0)
            if head.bias is not None:
                bias[place] += head.node_bias.numpy()[nodes].sum()
    return kernel, bias


def examples_of(head, features, labels, training=True):
    output = ClassOutput(head, None, training)
    return output.examples(labels, tf.convert_to_tensor(features), "test")


@pytest.mark.parametrize("selector", ["tree", "huffman", "subsets", "frequent"])
def test_call_passes_features_through(selector):
    head = make_head(selector)
    x = features_of(5)
    check_config(head)
    check_functions(head, x)
    np.testing.assert_array_equal(head(x), x)
    assert head.compute_output_shape((None, 7, WIDTH)) == (None, 7, WIDTH)
    assert head(keras.KerasTensor((None, 7, WIDTH))).shape == (None, 7, WIDTH)
    weights = 4 if selector != "frequent" else 2
    assert len(head.trainable_weights) == weights


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    head = make_head(dtype=policy)
    x, y = features_of(40), labels_of(40)
    model = keras.Sequential(
        [keras.Input((WIDTH,)), keras.layers.Dense(WIDTH, dtype=policy), head]
    )
    assert model(x).dtype == head.compute_dtype
    assert head.kernel.dtype == "float32"
    model.compile("adam", CANELoss(), run_eagerly=True)
    losses = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


@pytest.mark.parametrize("selector", ["tree", "huffman", "frequent"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_exact_loss_and_ranks(selector, use_bias, monkeypatch):
    # Several chunks, the last of which is not full.
    chunks = "keras_compembed.candidates.class_scores.chunk_sizes"
    monkeypatch.setattr(chunks, lambda *_: (4, 7))
    head = make_head(selector, use_bias=use_bias)
    head.build((None, WIDTH))
    randomize(head)
    x, y = features_of(9), labels_of(9)
    losses, ranks = head.exact(tf.constant(x), tf.constant(y, "int32"))
    kernel, bias = table_of(head)
    scores = x @ kernel.T + bias
    expected = [
        reference.softmax_loss(s, k) for s, k in zip(scores, y, strict=True)
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    above = (scores > scores[np.arange(9), y][:, None]).sum(axis=1)
    np.testing.assert_array_equal(ranks, above)
    full, best = head.choices(tf.constant(x), tf.constant(y, "int32"))
    np.testing.assert_allclose(full, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(best, above == 0)


def test_rank_of_equal_scores_is_that_of_argmax():
    head = make_head("frequent", kernel_initializer="zeros")
    head.build((None, WIDTH))
    y = tf.constant([0, 3, 59])
    _, ranks = head.exact(tf.zeros((3, WIDTH)), y)
    np.testing.assert_array_equal(ranks, [0, 3, 59])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_algorithm_2(jit_compile):
    """Gradients of edges by equations 10 and 11, and Proposition 1."""
    classes = 12
    tree = ClassTree.from_taxonomy(taxonomy(TREE))
    cases = [(6, [5, 6, 7], [8, 0]), (9, [5, 6], [3, 3])]
    for label, candidates, noises in cases[:1] if jit_compile else cases:
        selector = Given()
        selector.tree = BeamTree(tree).tree
        selector.table = [candidates]
        selector.build = lambda shape, s=selector: s.tree.build()
        head = CANESoftmax(
            classes,
            selector,
            num_candidates=len(candidates),
            num_noises=len(noises),
            estimate="separate",
            use_bias=False,
        )
        head.build((None, WIDTH))
        randomize(head)
        drawn = tf.constant([noises])
        head.noise.sample = lambda bits, excluded, d=drawn: d
        x = features_of(1)

        def step(x, head=head, label=label):
            with tf.GradientTape() as tape:
                losses = examples_of(head, x, np.array([label])).draw().losses
            sources = [head.kernel.value, head.nodes.value]
            gradients = tape.gradient(losses, sources)
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
    head = CANESoftmax(
        classes,
        selector,
        num_candidates=2,
        num_noises=2,
        estimate=estimate,
        use_bias=False,
        seed=0,
    )
    model = keras.Sequential([keras.Input((1,)), head])
    rate = keras.optimizers.schedules.PolynomialDecay(1.0, 6 * 40, 0.01)
    model.compile(keras.optimizers.SGD(rate), CANELoss())
    model.fit(x, labels, batch_size=250, epochs=6, verbose=0)
    found = tf.nn.softmax(head.kernel.numpy()[:, 0])
    # Equal to the maximum-likelihood estimate but for noise of the draws.
    np.testing.assert_allclose(found, counts / 100, atol=0.02)


@pytest.mark.parametrize(
    ("noise", "jit_compile"),
    [("uniform", False), ("learned", False), ("learned", True)],
)
def test_only_rows_drawn_change(noise, jit_compile):
    head = make_head("frequent", noise=noise)
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    optimizer = SparseRowOptimizer(keras.optimizers.Adam(0.1))
    model.compile(
        optimizer,
        CANELoss(),
        jit_compile=jit_compile,
        run_eagerly=not jit_compile,
    )
    model.fit(features_of(4), labels_of(4), batch_size=4, verbose=0)
    before = head.kernel.numpy()
    # Moments that are not zero now must not move other rows.
    y = np.zeros(4, "int32")
    model.fit(features_of(4), y, batch_size=4, verbose=0)
    changed = (head.kernel.numpy() != before).any(axis=1)
    frequent = set(head.selector.classes.numpy())
    assert frequent <= set(np.flatnonzero(changed))
    assert changed.sum() <= 6 + 4 * 4 < CLASSES / 2


@pytest.mark.parametrize(
    ("selector", "share_noises"),
    [
        ("tree", 3),
        ("huffman", True),
        ("subsets", False),
        ("frequent", True),
    ],
)
def test_fit_learns_and_files_keep_it(selector, share_noises, tmp_path):
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(CLASSES, WIDTH)).astype("float32")
    y = labels_of(640)
    x = centers[y] + 0.1 * features_of(640)
    head = make_head(
        selector,
        share_noises=share_noises,
        noise=LearnedNoise(),
        class_counts=COUNTS,
    )
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    adam = keras.optimizers.Adam(0.05)
    model.compile(adam, CANELoss(), metrics=[ClassAccuracy()])
    model.fit(x, y, epochs=6, verbose=0)
    loss, accuracy = model.evaluate(x, y, verbose=0)
    assert accuracy > 0.9
    kernel, bias = table_of(head)
    expected = keras.losses.sparse_categorical_crossentropy(
        y, (x @ kernel.T + bias).astype("float32"), from_logits=True
    )
    np.testing.assert_allclose(loss, np.mean(expected), rtol=1e-4)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, y, verbose=0) == [loss, accuracy]
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), same.numpy())
    # As for Keras's own layers, files do not hold where random numbers are.
    loaded.layers[-1].seed_generator.state.assign(head.seed_generator.state)
    if selector == "subsets":
        state = head.selector.seed_generator.state
        loaded.layers[-1].selector.seed_generator.state.assign(state)
    # A few steps are made sooner than a graph of them.
    loaded.run_eagerly = True
    part = x[:96], y[:96]
    first = model.fit(*part, shuffle=False, verbose=0).history["loss"]
    again = loaded.fit(*part, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(first, again, rtol=1e-4)
    np.testing.assert_array_equal(
        head.top_k(x[:9], 3)[0], loaded.layers[-1].top_k(x[:9], 3)[0]
    )


def language_model(**kwargs):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(CLASSES, WIDTH, mask_zero=True),
            keras.layers.Dense(WIDTH),
            make_head(**kwargs),
        ]
    )


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
        model = language_model()
        model.compile("adam", CANELoss(), run_eagerly=True)
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


@pytest.mark.parametrize("share_noises", [None, 5, "labels"])
def test_batches_without_examples(share_noises):
    """As `tf.data` gives where all rows of a batch were filtered out."""
    x, y = features_of(20), labels_of(20)
    weights = []
    for sizes in ([20], [20, 0]):
        head = make_head(
            "frequent",
            num_noises=6,
            share_noises=share_noises,
            noise=UnigramNoise(COUNTS, power=1),
        )
        model = keras.Sequential([keras.Input((WIDTH,)), head])
        model.compile("sgd", CANELoss(), run_eagerly=True)
        for size in sizes:
            loss = model.train_on_batch(x[:size], y[:size])
            assert np.isfinite(loss)
        weights.append(model.trainable_variables)
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_functional_model_with_an_axis_on_labels():
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, make_head()(inputs))
    model.compile("sgd", CANELoss(), run_eagerly=True)
    x, y = features_of(20), labels_of(20)
    loss = model.evaluate(x, y, verbose=0)
    assert loss == model.evaluate(x, y[:, None], verbose=0)
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)


def embedding_of(name):
    if name == "anchors":
        return ANTEmbedding(CLASSES, WIDTH, num_anchors=12, seed=0)
    rng = np.random.default_rng(0)
    return CodeEmbedding(
        CLASSES,
        WIDTH,
        num_codebooks=4,
        codebook_size=8,
        codes=rng.integers(8, size=(CLASSES, 4)),
        codebooks=rng.normal(size=(4, 8, WIDTH)),
    )


@pytest.mark.parametrize("embedding", ["anchors", "codes"])
@pytest.mark.parametrize("selector", ["tree", "frequent"])
def test_compressed_class_vectors(embedding, selector, tmp_path):
    """Tied to the input, from the first layer to the last."""
    layer = embedding_of(embedding)
    inputs = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Dense(WIDTH)(layer(inputs))
    head = make_head(selector, class_embedding=layer)
    model = keras.Model(inputs, head(hidden))
    assert head.kernel is None
    rng = np.random.default_rng(0)
    x = rng.integers(CLASSES, size=(30, 5))
    before = [weight.numpy() for weight in model.trainable_weights]
    model.compile("adam", CANELoss(), run_eagerly=True)
    model.fit(x, x, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert (weight.numpy() != old).any(), weight.path
    table = np.asarray(layer(np.arange(CLASSES)))
    vectors = head.scores.own_vectors(tf.range(CLASSES))
    np.testing.assert_allclose(vectors, table, rtol=1e-6)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].class_embedding is loaded.layers[1]
    assert loaded.evaluate(x, x, verbose=0) == model.evaluate(x, x, verbose=0)


def test_starts_at_class_frequencies():
    for selector in ("tree", "huffman", "frequent", "subsets"):
        head = make_head(
            selector, class_counts=COUNTS, kernel_initializer="zeros"
        )
        head.build((None, WIDTH))
        _, bias = table_of(head)
        expected = np.log(COUNTS / COUNTS.sum())
        np.testing.assert_allclose(bias, expected, rtol=1e-5)


def test_noises_follow_class_counts():
    counts = np.where(np.arange(CLASSES) < 50, COUNTS, 0)
    head = make_head(class_counts=counts)
    head.build((None, WIDTH))
    q = np.maximum(counts, 0.5) ** 0.75
    log_q = head.noise.log_prob(tf.range(CLASSES))
    np.testing.assert_allclose(log_q, np.log(q / q.sum()), rtol=1e-5)
    assert isinstance(make_head().noise, UniformNoise)
    assert isinstance(make_head(noise="learned").noise, LearnedNoise)


def test_starts_at_class_means():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(CLASSES, WIDTH)).astype("float32")
    tree = ClassTree.from_vectors(means, branching=4, seed=0, verbose=0)
    head = CANESoftmax(CLASSES, BeamTree(tree, max_frontier=4))
    head.build((None, WIDTH))
    kernel, _ = table_of(head)
    np.testing.assert_allclose(kernel, means - tree.root_mean, atol=1e-5)
    other = CANESoftmax(CLASSES, BeamTree(tree))
    other.build((None, WIDTH + 1))
    assert np.abs(other.kernel.numpy()).max() <= 0.05
    np.testing.assert_array_equal(other.nodes.numpy(), 0)


def test_too_few_classes_train_the_full_softmax():
    with pytest.warns(UserWarning, match=r"trains a full softmax.*60"):
        head = make_head(num_candidates=40, num_noises=20)
    x, y = features_of(16), labels_of(16)
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile("sgd", CANELoss(), run_eagerly=True)
    before = model.evaluate(x, y, batch_size=16, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = model.fit(x, y, batch_size=16, verbose=0).history["loss"]
    np.testing.assert_allclose(loss[0], before, rtol=1e-5)
    assert model.evaluate(x, y, verbose=0) < before


def test_top_k_is_exact_with_a_wide_beam():
    head = make_head()
    head.build((None, WIDTH))
    randomize(head)
    head.selector.beam_width = CLASSES
    x = features_of(6).reshape(2, 3, WIDTH)
    ids, probabilities = head.top_k(x, k=4)
    kernel, bias = table_of(head)
    scores = x @ kernel.T + bias
    expected = np.argsort(-scores)[..., :4]
    np.testing.assert_array_equal(ids, expected)
    softmax = tf.nn.softmax(scores)
    np.testing.assert_allclose(
        probabilities,
        np.take_along_axis(softmax.numpy(), expected, axis=-1),
        rtol=1e-4,
    )


def test_not_a_number_is_not_found():
    head = make_head("frequent")
    head.build((None, WIDTH))
    x = features_of(2)
    x[1] = np.nan
    ids, probabilities = head.top_k(x, k=3)
    assert (ids[0] >= 0).numpy().all()
    np.testing.assert_array_equal(ids[1], [-1, -1, -1])
    assert not np.asarray(probabilities)[0].sum() > 1 + 1e-6


def test_config_is_short_json():
    head = make_head(class_counts=COUNTS, noise=UnigramNoise(COUNTS))
    text = json.dumps(head.get_config())
    assert len(text) < 4000


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_classes": 1}, "`num_classes` must be an integer of at least 2"),
        ({"num_candidates": 0}, "`num_candidates` must be a positive integer"),
        ({"num_noises": True}, "`num_noises` must be a positive integer"),
        ({"estimate": "both"}, "`estimate` must be one of 'joint', 'separate'"),
        ({"noise": "pink"}, "`noise` must be"),
        ({"selector": "beam"}, '`selector` must be "auto", a `keras_comp'),
        ({"selector": BeamTree}, '`selector` must be "auto", a `keras_comp'),
        ({"use_bias": "no"}, "`use_bias` must be True or False"),
        ({"class_counts": [1, 2]}, "num_classes=60. Received: 2"),
        ({"class_counts": np.full(60, -1)}, "`class_counts` must be finite"),
        ({"class_embedding": "x"}, "`class_embedding` must be a `keras.lay"),
        (
            {"class_embedding": ANTEmbedding(50, 4, num_anchors=3)},
            "num_classes=60. Received: input_dim=50",
        ),
        (
            {
                "class_embedding": ANTEmbedding(60, 4, num_anchors=3),
                "kernel_initializer": "zeros",
            },
            "`kernel_initializer` must be None .* kernel_initializer='zeros'",
        ),
        (
            {"selector": BeamTree(ClassTree.random(61, 4, 0))},
            "num_classes=60. Received: a tree of 61",
        ),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        CANESoftmax(**{"num_classes": CLASSES, **kwargs})


def test_bad_inputs():
    layer = ANTEmbedding(CLASSES, 4, num_anchors=3)
    with pytest.raises(ValueError, match="as wide as the features, 8"):
        make_head(class_embedding=layer).build((None, WIDTH))
    with pytest.raises(ValueError, match="The last axis of the features"):
        make_head().build((None, None))
    with pytest.raises(ValueError, match="`k` must be an integer from 1 to 60"):
        make_head().top_k(features_of(1), k=61)
    shared = make_selector("tree")
    CANESoftmax(CLASSES, shared)
    with pytest.raises(ValueError, match="must belong to one layer"):
        CANESoftmax(CLASSES, shared, num_candidates=3)


@pytest.mark.parametrize("part", ["selector", "noise"])
def test_parts_of_two_layers(part):
    shared = {"selector": make_selector("tree"), "noise": UnigramNoise(COUNTS)}
    first, second = (
        CANESoftmax(CLASSES, **{part: shared[part]}) for _ in range(2)
    )
    for _ in range(2):
        first.build((None, WIDTH))
    kind = type(shared[part]).__name__
    with pytest.raises(ValueError, match=f"must belong to one.*{kind}.from_c"):
        second.build((None, WIDTH))
    own = type(shared[part]).from_config(shared[part].get_config())
    CANESoftmax(CLASSES, **{part: own}).build((None, WIDTH))


@pytest.mark.parametrize("embedding", ["anchors", "codes"])
def test_compressed_class_vectors_under_xla(embedding):
    head = make_head("tree", class_embedding=embedding_of(embedding))
    head.build((None, WIDTH))
    groups = [[[3], [7], [3]], [[3, 50, 7], [9, 8, 3], [7, 3, 1]], [3, 7, 3]]
    groups = [tf.constant(group) for group in groups]

    @tf.function(jit_compile=True)
    def compiled(x):
        return head.scores.score(x, *groups)

    x = tf.constant(features_of(3))
    for got, expected in zip(
        compiled(x), head.scores.score(x, *groups), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
