"""Parts of vectors and biases whose sums over paths are what is known."""

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
def test_means_and_log_frequencies(name):
    tree = TREES[name]()
    rng = np.random.default_rng(0)
    means = 3 + rng.normal(size=(tree.num_classes, 4)).astype("float32")
    tree.set_means(means, rng.random(tree.num_classes))
    parts = differences_of_means(tree)
    assert all(part.dtype == "float32" for part in parts)
    classes, nodes = path_sums(tree, *parts)
    # The mean of all, which all classes share, changes no probability.
    np.testing.assert_allclose(classes, means - tree.root_mean, atol=1e-5)
    right = tree.node_means - tree.root_mean
    np.testing.assert_allclose(nodes, right, atol=1e-5)

    counts = 10 ** rng.uniform(-1, 6, tree.num_classes)
    parts = log_shares(tree, counts)
    assert all(part.dtype == "float32" for part in parts)
    assert all((part <= 0).all() for part in parts)
    classes, nodes = path_sums(tree, *parts)
    shares = counts / counts.sum()
    # Up to 7 logarithms of size 16, each rounded to 24 bits.
    np.testing.assert_allclose(classes, np.log(shares), atol=1e-5)
    under = [
        shares[(tree.paths() == node).any(axis=1)].sum()
        for node in range(tree.num_nodes)
    ]
    np.testing.assert_allclose(nodes, np.log(under), atol=1e-5)


def test_log_frequencies_of_classes_alone():
    counts = np.array([1, 3, 4])
    classes, nodes = log_shares(None, counts)
    np.testing.assert_allclose(classes, np.log(counts / 8), rtol=1e-6)
    assert classes.dtype == "float32" and nodes is None


@pytest.mark.parametrize("name", ["one level", "groups"])
def test_counts_that_are_far_apart(name):
    tree = TREES[name]()
    counts = np.geomspace(1e-30, 1e30, tree.num_classes)
    assert all(np.isfinite(part).all() for part in log_shares(tree, counts))
