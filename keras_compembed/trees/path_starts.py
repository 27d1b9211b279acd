"""Vectors and biases of the nodes and classes of a tree, from known sums."""

import numpy as np


def differences_of_means(tree):
    """Vectors whose sums over paths are the means that a tree was made from."""
    above = np.concatenate([tree.node_means, tree.root_mean[None]])
    # A parent of -1, the root, is the last row.
    classes = tree.class_means - above[tree.class_parents]
    return classes, tree.node_means - above[tree.node_parents]


def log_shares(tree, counts):
    """Biases whose sums over paths are the log frequencies of classes."""
    counts = np.asarray(counts, "float64")
    shares = np.log(counts / counts.sum())
    if tree is None:
        return shares.astype("float32"), None
    return differences_of_biases(tree, shares)


def differences_of_biases(tree, biases):
    """Biases whose sums over paths are those given."""
    biases = np.asarray(biases, "float64")
    # A parent of -1, the root, is the last one.
    above = np.full(tree.num_nodes + 1, -np.inf)
    np.logaddexp.at(above, tree.class_parents, biases)
    ends = np.cumsum(tree.level_sizes, dtype=int)
    for end, size in zip(ends[::-1], tree.level_sizes[::-1], strict=True):
        nodes = np.arange(end - size, end)
        np.logaddexp.at(above, tree.node_parents[nodes], above[nodes])
    above[-1] = 0
    classes = biases - above[tree.class_parents]
    nodes = above[:-1] - above[tree.node_parents]
    return classes.astype("float32"), nodes.astype("float32")
