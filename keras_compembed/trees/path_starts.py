"""Initial vectors and biases of the nodes and classes of a tree."""

import numpy as np


def differences_of_means(tree):
    """Vectors whose sums over paths are the means that a tree was made from.

    Args:
        tree: `ClassTree` with means.

    Returns:
        float32 arrays: of classes `(num_classes, width)`, and of inner nodes
        `(num_nodes, width)`.
    """
    above = np.concatenate([tree.node_means, tree.root_mean[None]])
    # A parent of -1, the root, is the last row.
    classes = tree.class_means - above[tree.class_parents]
    return classes, tree.node_means - above[tree.node_parents]


def log_shares(tree, counts):
    """Biases whose sums over paths are the log frequencies of classes.

    The sum down to an inner node is the log frequency of what is under it, so
    that a search follows frequent classes before anything is learned.

    Args:
        tree: `ClassTree`, or None for classes alone.
        counts: Array `(num_classes,)`, positive.

    Returns:
        float32 arrays: of classes `(num_classes,)`, and of inner nodes
        `(num_nodes,)`.
    """
    counts = np.asarray(counts, "float64")
    if tree is None:
        return np.log(counts / counts.sum()).astype("float32"), None
    mass = np.zeros(tree.num_nodes + 1)
    # A parent of -1, the root, is the last one.
    np.add.at(mass, tree.class_parents, counts)
    ends = np.cumsum(tree.level_sizes)
    for end, size in zip(ends[::-1], tree.level_sizes[::-1], strict=True):
        nodes = np.arange(end - size, end)
        np.add.at(mass, tree.node_parents[nodes], mass[nodes])
    classes = np.log(counts / mass[tree.class_parents])
    nodes = np.log(mass[:-1] / mass[tree.node_parents])
    return classes.astype("float32"), nodes.astype("float32")
