"""What the nodes and classes of a tree start from, by means and counts."""

import numpy as np

from keras_compembed.utils.validation import float_chunks

# Numbers held at a time.
_ENTRIES = 1 << 22


def node_means(tree, vectors, weights=None):
    """Mean of the vectors of the classes below each inner node."""
    width = vectors.shape[1]
    means = np.zeros((tree.num_nodes + 1, width), "float32")
    # Of the entries of children: inner nodes, then classes, then padding.
    size = tree.num_nodes + tree.num_classes
    counts = np.ones(size + 1)
    counts[-1] = 0
    loads = counts.copy()
    if weights is not None:
        loads[tree.num_nodes : size] = weights
    stops = np.cumsum([1, *tree.level_sizes])
    step = max(1, _ENTRIES // (tree.branching * width))
    for start, stop in zip([0, *stops[:-1]][::-1], stops[::-1], strict=True):
        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            below = tree.children[rows]
            share = loads[below]
            share = np.where(
                share.any(axis=1, keepdims=True), share, counts[below]
            )
            share /= share.sum(axis=1, keepdims=True)
            inner = (below >= 0) & (below < tree.num_nodes)
            parts = vectors[np.clip(below - tree.num_nodes, 0, None)]
            parts[inner] = means[1 + below[inner]]
            share = share[:, None].astype("float32")
            means[rows] = np.matmul(share, parts)[:, 0]
            # The root is nobody's child.
            nodes = slice(max(rows.start - 1, 0), rows.stop - 1)
            below = below[rows.start == 0 :]
            loads[nodes] = loads[below].sum(axis=1)
            counts[nodes] = counts[below].sum(axis=1)
    return means[1:], means[0]


def label_means(x, y, num_classes):
    """Mean of the examples of each class."""
    sums = np.zeros((num_classes, x.shape[1]), "float32")
    total = np.zeros(x.shape[1])
    for start, chunk in float_chunks(x):
        labels = y[start : start + len(chunk)]
        order = np.argsort(labels, kind="stable")
        labels = labels[order]
        firsts = np.flatnonzero(np.diff(labels, prepend=-1))
        # In float64: many examples may be of one class.
        part = np.add.reduceat(chunk[order], firsts, axis=0, dtype="float64")
        sums[labels[firsts]] += part
        total += part.sum(axis=0)
    counts = np.bincount(y, minlength=num_classes)
    sums /= np.maximum(counts, 1)[:, None].astype("float32")
    sums[counts == 0] = total / len(x)
    return sums, counts


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
