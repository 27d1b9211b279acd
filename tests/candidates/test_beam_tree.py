import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES
from beam_heads import WIDTH
from beam_heads import best
from beam_heads import make_features
from beam_heads import make_head
from beam_heads import search

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.trees import ClassTree


def test_candidates_and_beam_width():
    """Candidates take a beam of their number, or of another one."""
    features = make_features(20)
    tree = TREES["even"]()
    head = make_head(tree, num_candidates=6)
    for beam_width, used in [(None, 6), (1, 1), (2, 2), (12, 12)]:
        head.selector.beam_width = beam_width
        candidates = head.selector.select(head.scores, features)
        assert candidates.shape == (20, 6)
        assert candidates.dtype == "int32"
        right, _ = best(search(head, tree, features, used), 6)
        np.testing.assert_array_equal(candidates, right)


@pytest.mark.parametrize(
    "beam_width, k, used",
    [(None, 2, 3), (None, 8, 8), (2, 1, 2), (2, 5, 5), (20, 5, 20)],
)
def test_top_k_and_beam_width(beam_width, k, used):
    features = make_features(20)
    tree = TREES["even"]()
    head = make_head(tree, beam_width)
    ids, probabilities = head.top_k(features, k)
    met = search(head, tree, features, used)
    right, scores = best(met, k)
    np.testing.assert_array_equal(ids, right)
    totals = [np.sum(np.exp(list(found.values()))) for found in met]
    np.testing.assert_allclose(
        probabilities, np.exp(scores) / np.array(totals)[:, None], rtol=1e-4
    )


def test_frontier():
    """Vectors and biases of the frontier are sums over paths."""
    tree = TREES["taxonomy"]()
    head = make_head(tree, max_frontier=9)
    entries, vectors, biases = head.selector.frontier(head.scores)
    entries = entries.numpy()
    assert (np.diff(entries) > 0).all()
    number = int(np.sum(entries < tree.num_nodes))
    assert 0 < number < len(entries)
    classes = entries[number:] - tree.num_nodes
    np.testing.assert_array_equal(
        vectors[number:], head.scores.class_vectors(classes)
    )
    np.testing.assert_array_equal(
        biases[number:], head.scores.class_biases(classes)
    )
    assert_sums(tree, head, entries[:number], vectors, biases)


@pytest.mark.parametrize("name", TREES)
def test_vectors_of_nodes(name):
    tree = TREES[name]()
    head = make_head(tree)
    ends = np.cumsum(tree.level_sizes, dtype=int)
    for level, end in enumerate(ends):
        nodes = np.arange(end - tree.level_sizes[level], end)
        vectors = head.scores.node_vectors(level + 1)
        biases = head.scores.node_biases(level + 1)
        assert vectors.shape == (len(nodes), WIDTH)
        assert_sums(tree, head, nodes, vectors, biases)


def assert_sums(tree, head, nodes, vectors, biases):
    own, own_biases = head.nodes.numpy(), head.node_bias.numpy()
    for vector, bias, node in zip(vectors, biases, nodes, strict=False):
        path = []
        while node >= 0:
            path.append(node)
            node = tree.node_parents[node]
        np.testing.assert_allclose(vector, own[path].sum(axis=0), atol=1e-6)
        np.testing.assert_allclose(bias, own_biases[path].sum(), atol=1e-6)


@pytest.mark.parametrize("max_frontier", [1, 1024])
@pytest.mark.parametrize("name", ["even", "taxonomy", "one level"])
def test_config(name, max_frontier):
    selector = BeamTree(TREES[name](), 7, max_frontier, name="beam")
    config = json.loads(json.dumps(selector.get_config()))
    again = BeamTree.from_config(config)
    assert json.loads(json.dumps(again.get_config())) == config
    assert again.beam_width == 7
    assert again.max_frontier == max_frontier
    assert again.name == "beam"
    assert again.tree.level_sizes == selector.tree.level_sizes


@pytest.mark.parametrize("name", ["taxonomy", "one level"])
def test_files(name, tmp_path):
    tree = TREES[name]()
    model = keras.Sequential(
        [keras.Input((WIDTH,)), make_head(tree, 3, max_frontier=5)]
    )
    model.compile("sgd", kc.CANELoss(), jit_compile=False)
    features = make_features(32)
    labels = np.arange(32) % tree.num_classes
    model.fit(features, labels, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    for a, b in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(
        model.layers[-1].top_k(features),
        again.layers[-1].top_k(features),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    restored = again.layers[-1].selector.tree.class_tree
    np.testing.assert_array_equal(restored.children, tree.children)
    again.fit(features, labels, verbose=0)


def test_no_gradient():
    """Choosing candidates has no part in the gradients."""
    head = make_head("even")
    features = tf.constant(make_features())
    with tf.GradientTape() as tape:
        tape.watch(features)
        ids = head.selector.select(head.scores, features)
    assert ids.dtype == tf.int32
    assert tape.gradient(ids, features) is None


def test_other_numbers_of_classes():
    selector = BeamTree(ClassTree.random(50, seed=0))
    with pytest.raises(ValueError, match="num_classes=40.* a tree of 50"):
        kc.CANESoftmax(40, selector)


def test_one_selector_for_two_layers():
    selector = BeamTree(ClassTree.random(50, seed=0))
    kc.CANESoftmax(50, selector, num_candidates=4)
    with pytest.raises(ValueError, match="must belong to one layer"):
        kc.CANESoftmax(50, selector, num_candidates=5)


@pytest.mark.parametrize("tree", [None, [[0, 1]], "random"])
def test_what_is_no_tree(tree):
    with pytest.raises(ValueError, match="`tree` must be a"):
        BeamTree(tree)


@pytest.mark.parametrize("name", ["beam_width", "max_frontier"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_numbers(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive"):
        BeamTree(ClassTree.random(50, seed=0), **{name: value})
