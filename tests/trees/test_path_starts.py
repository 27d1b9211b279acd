import numpy as np
import pytest
from beam_heads import TREES

from keras_compembed.trees.path_starts import differences_of_means
from keras_compembed.trees.path_starts import log_shares


def path_sums(tree, classes, nodes):
    """Sums down to each class, and to each inner node."""
    totals = np.array(nodes, "float64")
    for node in range(tree.num_nodes):
        # Parents have smaller numbers.
        above = tree.node_parents[node]
        if above >= 0:
            totals[node] += totals[above]
    classes = np.array(classes, "float64")
    inner = tree.class_parents >= 0
    classes[inner] += totals[tree.class_parents[inner]]
    return classes, totals


@pytest.mark.parametrize("name", TREES)
def test_means(name):
    tree = TREES[name]()
    rng = np.random.default_rng(0)
    means = 3 + rng.normal(size=(tree.num_classes, 4)).astype("float32")
    tree.set_means(means, rng.random(tree.num_classes))
    parts = differences_of_means(tree)
    assert all(part.dtype == "float32" for part in parts)
    assert parts[0].shape == (tree.num_classes, 4)
    assert parts[1].shape == (tree.num_nodes, 4)
    classes, nodes = path_sums(tree, *parts)
    # The mean of all, which all classes share, changes no probability.
    np.testing.assert_allclose(classes, means - tree.root_mean, atol=1e-5)
    np.testing.assert_allclose(
        nodes, tree.node_means - tree.root_mean, atol=1e-5
    )


@pytest.mark.parametrize("name", TREES)
def test_log_frequencies(name):
    tree = TREES[name]()
    rng = np.random.default_rng(1)
    counts = 10 ** rng.uniform(-1, 6, tree.num_classes)
    parts = log_shares(tree, counts)
    assert all(part.dtype == "float32" for part in parts)
    assert all((part <= 0).all() for part in parts)
    classes, nodes = path_sums(tree, *parts)
    shares = counts / counts.sum()
    # Up to 7 logarithms of size 16, each rounded to 24 bits.
    np.testing.assert_allclose(classes, np.log(shares), atol=1e-5)
    paths = tree.paths()
    for node in range(tree.num_nodes):
        under = (paths == node).any(axis=1)
        assert nodes[node] == pytest.approx(
            np.log(shares[under].sum()), abs=1e-5
        )


def test_log_frequencies_of_classes_alone():
    counts = np.array([1, 3, 4])
    classes, nodes = log_shares(None, counts)
    np.testing.assert_allclose(classes, np.log(counts / 8), rtol=1e-6)
    assert classes.dtype == "float32" and nodes is None


def test_counts_that_are_far_apart():
    counts = [1e-30, 1e30, 1.0, 5.0, 2.0, 1e12, 3.0, 4.0, 1e-9]
    classes, nodes = log_shares(TREES["one level"](), counts)
    assert np.isfinite(classes).all() and len(nodes) == 0
    tree = TREES["groups"]()
    counts = np.geomspace(1e-30, 1e30, tree.num_classes)
    assert all(np.isfinite(part).all() for part in log_shares(tree, counts))
