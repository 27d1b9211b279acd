"""A tree with classes as leaves."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.classes.balanced_k_means import balanced_parts
from keras_compembed.classes.balanced_k_means import cluster_levels
from keras_compembed.utils.validation import check_one_a_class
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

# The tree numbers its entries in int32.
_MOST_CLASSES = 2**30
# Array entries to process at a time.
_ENTRIES = 1 << 22
# Largest padded array of children: 8 GB.
_MOST_ENTRIES = 1 << 31


class ClassTree:
    """A tree over classes, for beam search.

    Nodes may have any number of children, and classes may be at any depth.
    Inner nodes below the root are numbered from 0, level by level. Usually you
    build a tree with one of the class methods, such as `from_vectors`.

    Example:

    >>> vectors = np.random.default_rng(0).normal(size=(1000, 64))
    >>> tree = ClassTree.from_vectors(vectors, branching=10, seed=0, verbose=0)
    >>> tree.level_sizes, tree.depth
    ((10, 100), 3)
    >>> tree = ClassTree.from_frequencies([8, 4, 2, 1, 1])
    >>> tree.depths()
    array([1, 2, 3, 4, 4], dtype=int32)

    Args:
        children: Integer array `(num_nodes + 1, branching)`. Row 0 has the
            children of the root, row `1 + i` those of inner node `i`. An entry
            `i` is inner node `i`, and `num_nodes + c` is class `c`. Rows are
            padded by -1. Inner nodes are renumbered level by level.
        num_classes: Integer.

    Attributes:
        children: int32 array, see above.
        num_classes, num_nodes: Integers, classes and inner nodes.
        branching: Integer, the largest number of children of a node.
        depth: Integer, edges from the root to the deepest class.
        level_sizes: Tuple of integers, inner nodes at depth 1, 2, and so on.
        class_parents, node_parents: int32 arrays `(num_classes,)` and
            `(num_nodes,)`, the inner node above each, -1 for the root.
        class_means, node_means, root_mean: float32 arrays
            `(num_classes, width)`, `(num_nodes, width)` and `(width,)`, the
            means of classes, nodes and root. None unless the tree was built
            from vectors.

    Raises:
        ValueError: If `children` is not a tree with each class once.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 4.2
    """

    def __init__(self, children: ArrayLike, num_classes: int):
        self.num_classes = check_positive_int(
            "num_classes", num_classes, maximum=_MOST_CLASSES
        )
        children = check_children(children, self.num_classes)
        self.num_nodes = len(children) - 1
        self.children, self.level_sizes = sort_levels(children, self.num_nodes)
        self.branching = self.children.shape[1]
        self.depth = len(self.level_sizes) + 1
        counts = (self.children >= 0).sum(axis=1)
        parents = np.empty(self.num_nodes + self.num_classes, "int32")
        parents[self.children[self.children >= 0]] = np.repeat(
            np.arange(-1, self.num_nodes), counts
        )
        self.node_parents = parents[: self.num_nodes]
        self.class_parents = parents[self.num_nodes :]
        self.class_means = self.node_means = self.root_mean = None

    @classmethod
    def from_vectors(
        cls,
        vectors: ArrayLike,
        branching: int = 10,
        weights: ArrayLike | None = None,
        seed: int | None = None,
        verbose: int = 1,
    ) -> "ClassTree":
        """Builds a tree by hierarchical balanced k-means.

        From the top down, the classes of each node are split into clusters
        with sizes that differ by at most 1. The tree has the smallest possible
        depth, and the depths of classes differ by at most 1.

        Args:
            vectors: Array `(num_classes, width)` of finite numbers.
            branching: Integer, at least 2. The largest number of children of a
                node. Defaults to `10`.
            weights: Optional array `(num_classes,)` of non-negative numbers,
                the weights in the means of nodes. Defaults to `None`: equal.
            seed: Optional integer, for a reproducible tree.
            verbose: `0` or `1`, whether to show progress. Defaults to `1`.
        """
        branching = check_positive_int("branching", branching, minimum=2)
        vectors = check_table(vectors, "vectors")
        if weights is not None:
            weights = check_scores("weights", weights)
            check_one_a_class("weights", weights, len(vectors))
        check_seed(seed)
        vectors = np.asarray(vectors, "float32", order="C")
        order, levels = cluster_levels(vectors, branching, seed, verbose)
        tree = cls(balanced_children(order, levels), len(vectors))
        return tree._set_means(vectors, weights)

    @classmethod
    def from_labels(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        branching: int = 10,
        num_classes: int | None = None,
        seed: int | None = None,
        verbose: int = 1,
    ) -> "ClassTree":
        """Builds a tree from labelled examples, see `from_vectors`.

        The vector of a class is the mean of its examples, and its weight is
        their number. Classes without examples get the mean of all examples.

        Args:
            x: Array `(examples, width)` of features; may be memory-mapped.
            y: Integer array `(examples,)` or `(examples, 1)`, labels.
            num_classes: Optional integer. Defaults to the largest label
                plus 1.
            branching, seed, verbose: See `from_vectors`.
        """
        x = check_table(x, "x")
        y = np.asarray(y)
        require(
            y.shape in ((len(x),), (len(x), 1)) and y.dtype.kind in "iu",
            f"`y` must have an integer label for each of {len(x)} rows of `x`.",
            shape=y.shape,
            dtype=y.dtype.name,
        )
        y = y.reshape(-1)
        if num_classes is None:
            num_classes = int(y.max()) + 1
        check_positive_int("num_classes", num_classes, maximum=_MOST_CLASSES)
        require(
            y.min() >= 0 and y.max() < num_classes,
            f"`y` must have labels from 0 to {num_classes - 1}.",
            least=int(y.min()),
            largest=int(y.max()),
        )
        means, counts = label_means(x, y, num_classes)
        return cls.from_vectors(means, branching, counts, seed, verbose)

    @classmethod
    def from_frequencies(
        cls, counts: ArrayLike, branching: int = 2
    ) -> "ClassTree":
        """Builds the Huffman tree: frequent classes near the root.

        The mean depth, weighted by `counts`, is the smallest possible.

        Args:
            counts: Array `(num_classes,)` of non-negative numbers.
            branching: Integer, at least 2. Defaults to `2`.
        """
        branching = check_positive_int("branching", branching, minimum=2)
        counts = check_scores("counts", counts)
        return cls(huffman_children(counts, branching), len(counts))

    @classmethod
    def from_taxonomy(cls, paths: Sequence) -> "ClassTree":
        """Builds a tree from names of groups.

        A group with only one child is replaced by that child.

        Example:

        >>> paths = [["animal", "dog"], ["animal", "dog"], ["animal"], []]
        >>> ClassTree.from_taxonomy(paths).depths()
        array([3, 3, 2, 1], dtype=int32)

        Args:
            paths: Sequence with the group names of each class, from the top
                down, e.g. tuples of strings. An empty one puts the class below
                the root. Groups are the same if their full paths are.
        """
        paths = list(paths)
        return cls(taxonomy_children(paths), len(paths))

    @classmethod
    def from_groups(cls, groups: ArrayLike) -> "ClassTree":
        """Builds a tree with one level of groups below the root.

        Args:
            groups: Integer array `(num_classes,)`, the group of each class.
                Inner nodes are in the order of these integers.
        """
        groups = np.asarray(groups)
        require(
            groups.ndim == 1 and groups.size and groups.dtype.kind in "iu",
            "`groups` must have one integer for each class.",
            shape=groups.shape,
            dtype=groups.dtype.name,
        )
        _, groups, counts = np.unique(
            groups, return_inverse=True, return_counts=True
        )
        classes = np.argsort(groups, kind="stable") + len(counts)
        entries = np.concatenate([np.arange(len(counts)), classes])
        return cls(pad_children(entries, [len(counts), *counts]), len(groups))

    @classmethod
    def random(
        cls, num_classes: int, branching: int = 10, seed: int | None = None
    ) -> "ClassTree":
        """Builds a balanced tree over classes in random order.

        Args:
            num_classes: Integer.
            branching, seed: See `from_vectors`.
        """
        check_positive_int("num_classes", num_classes, maximum=_MOST_CLASSES)
        branching = check_positive_int("branching", branching, minimum=2)
        check_seed(seed)
        sizes = np.array([num_classes])
        levels = []
        for parts in balanced_parts(num_classes, branching):
            extra = np.arange(parts) < (sizes % parts)[:, None]
            sizes = (sizes[:, None] // parts + extra).ravel()
            levels.append(sizes)
        order = np.random.default_rng(seed).permutation(num_classes)
        return cls(balanced_children(order, levels), num_classes)

    def _set_means(self, vectors, weights=None):
        """Keeps the means of classes, and computes those of inner nodes."""
        self.class_means = np.asarray(vectors, "float32", order="C")
        self.node_means, self.root_mean = node_means(
            self, self.class_means, weights
        )
        return self

    def paths(self) -> np.ndarray:
        """Returns the inner nodes above each class.

        Returns:
            int32 array `(num_classes, depth - 1)` from the top, padded by -1.
        """
        paths = np.full((self.num_classes, self.depth - 1), -1, "int32")
        rows = np.flatnonzero(self.class_parents >= 0)
        nodes = self.class_parents[rows]
        places = self.depths()[rows] - 2
        while len(rows):
            paths[rows, places] = nodes
            nodes = self.node_parents[nodes]
            places = places - 1
            below = nodes >= 0
            rows, nodes, places = rows[below], nodes[below], places[below]
        return paths

    def depths(self) -> np.ndarray:
        """Edges from the root to each class, int32 array `(num_classes,)`."""
        sizes = (1, *self.level_sizes)
        # The last entry is the root, at index -1.
        nodes = np.roll(np.repeat(np.arange(len(sizes)), sizes), -1)
        return (nodes[self.class_parents] + 1).astype("int32")

    def __repr__(self):
        return (
            f"ClassTree(num_classes={self.num_classes}, "
            f"num_nodes={self.num_nodes}, branching={self.branching}, "
            f"depth={self.depth})"
        )


def node_means(tree, vectors, weights=None):
    """Means of the vectors of the classes below each inner node."""
    width = vectors.shape[1]
    means = np.zeros((tree.num_nodes + 1, width), "float32")
    # Indexed by child: inner nodes, then classes, then padding.
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
            # The root has no parent.
            nodes = slice(max(rows.start - 1, 0), rows.stop - 1)
            below = below[rows.start == 0 :]
            loads[nodes] = loads[below].sum(axis=1)
            counts[nodes] = counts[below].sum(axis=1)
    return means[1:], means[0]


def label_means(x, y, num_classes):
    """Means of the examples of each class."""
    sums = np.zeros((num_classes, x.shape[1]), "float32")
    total = np.zeros(x.shape[1])
    for start, chunk in float_chunks(x):
        labels = y[start : start + len(chunk)]
        order = np.argsort(labels, kind="stable")
        labels = labels[order]
        firsts = np.flatnonzero(np.diff(labels, prepend=-1))
        # float64, as a class may have many examples.
        part = np.add.reduceat(chunk[order], firsts, axis=0, dtype="float64")
        sums[labels[firsts]] += part
        total += part.sum(axis=0)
    counts = np.bincount(y, minlength=num_classes)
    sums /= np.maximum(counts, 1)[:, None].astype("float32")
    sums[counts == 0] = total / len(x)
    return sums, counts


def differences_of_means(tree):
    """Vectors that add up over paths to the means of a tree."""
    above = np.concatenate([tree.node_means, tree.root_mean[None]])
    # Parent -1, the root, is the last row.
    classes = tree.class_means - above[tree.class_parents]
    return classes, tree.node_means - above[tree.node_parents]


def log_shares(tree, counts):
    """Biases that add up over paths to the log frequencies of classes."""
    counts = np.asarray(counts, "float64")
    shares = np.log(counts / counts.sum())
    if tree is None:
        return shares.astype("float32"), None
    return differences_of_biases(tree, shares)


def differences_of_biases(tree, biases):
    """Biases that add up over paths to the given biases."""
    biases = np.asarray(biases, "float64")
    # Parent -1, the root, is the last entry.
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


def pad_children(entries, counts):
    """Rows of different lengths, padded by -1."""
    counts = np.asarray(counts, "int64")
    longest = int(counts.max())
    require(
        len(counts) * longest <= _MOST_ENTRIES,
        "A tree must not have many nodes and also a node with many children, "
        "as all rows of `children` are equally long. Split the largest node.",
        nodes=len(counts),
        children=longest,
    )
    children = np.full((len(counts), longest), -1, "int32")
    children[np.arange(longest) < counts[:, None]] = entries
    return children


def check_children(children, num_classes):
    """Returns children as an int32 array without empty columns, or raises."""
    children = np.asarray(children)
    require(
        children.ndim == 2 and children.size and children.dtype.kind in "iu",
        "`children` must be an integer matrix with a row for the root and for "
        "each inner node.",
        shape=children.shape,
        dtype=children.dtype.name,
    )
    num_nodes = len(children) - 1
    most = num_nodes + num_classes - 1
    require(
        children.min() >= -1 and children.max() <= most,
        f"`children` must have entries from -1 to {most}: {num_nodes} inner "
        f"nodes, then num_classes={num_classes} classes.",
        least=int(children.min()),
        largest=int(children.max()),
    )
    there = children >= 0
    wrong = ~there[:, 0] | (there[:, 1:] > there[:, :-1]).any(axis=1)
    require(
        not wrong.any(),
        "`children` must have at least one child in each row, and -1 only at "
        "the end of rows.",
        row=int(np.argmax(wrong)),
    )
    times = np.bincount(children[there], minlength=most + 1)
    entry = int(np.argmax(times != 1))
    require(
        times[entry] == 1,
        f"`children` must have each of {num_nodes} inner nodes and "
        f"num_classes={num_classes} classes exactly once.",
        entry=entry,
        times=int(times[entry]),
    )
    return children[:, there.any(axis=0)].astype("int32")


def sort_levels(children, num_nodes):
    """Renumbers inner nodes level by level from the root down."""
    levels = []
    rows = np.zeros(1, "int64")
    while len(rows):
        below = children[rows].ravel()
        rows = below[(below >= 0) & (below < num_nodes)].astype("int64") + 1
        levels.append(rows)
    order = np.concatenate(levels) - 1
    lost = np.setdiff1d(np.arange(num_nodes), order)
    require(
        not len(lost),
        "`children` must connect the root to every node, without cycles.",
        lost_nodes=lost[:1].tolist(),
    )
    if (order != np.arange(num_nodes)).any():
        number = np.empty(num_nodes, "int32")
        number[order] = np.arange(num_nodes)
        children = children[np.concatenate([[0], order + 1])]
        inner = (children >= 0) & (children < num_nodes)
        children[inner] = number[children[inner]]
    return children, tuple(len(level) for level in levels[:-1])


def balanced_children(order, level_sizes):
    """Children of nodes over given numbers of classes."""
    order = np.asarray(order, "int64")
    if not level_sizes:
        return pad_children(order, [len(order)])
    bottom = level_sizes[-1]
    above = sum(len(sizes) for sizes in level_sizes[:-1])
    num_nodes = above + np.count_nonzero(bottom > 1)
    classes = order + num_nodes
    starts = np.cumsum(bottom) - bottom
    lowest = np.where(
        bottom > 1, above + np.cumsum(bottom > 1) - 1, classes[starts]
    )
    counts = [
        np.full(len(over), len(under) // len(over))
        for over, under in zip(
            [order[:1], *level_sizes[:-1]], level_sizes, strict=True
        )
    ]
    below = classes[np.repeat(bottom > 1, bottom)]
    entries = np.concatenate([np.arange(above), lowest, below])
    return pad_children(entries, np.concatenate([*counts, bottom[bottom > 1]]))


def huffman_children(counts, branching):
    """Children of the nodes of a Huffman tree."""
    order = np.argsort(counts, kind="stable")
    taken = _merge(counts[order], branching)
    num_nodes = len(taken) - 1
    # Each merge has its leaves first, then earlier merges.
    is_leaf = np.repeat(np.tile([True, False], len(taken)), taken.ravel())
    entries = np.empty(len(is_leaf), "int64")
    entries[is_leaf] = num_nodes + order
    entries[~is_leaf] = np.arange(num_nodes)
    children = pad_children(entries, taken.sum(axis=1))
    # Move the root from the last row to the first.
    return np.roll(children, 1, axis=0)


def _merge(counts, branching):
    """Merges the smallest counts until one is left."""
    # Python numbers are faster than NumPy scalars here.
    counts = counts.tolist()
    leaves = len(counts)
    merges = max(1, -(-(leaves - 1) // (branching - 1)))
    size = min(leaves, 2 + (leaves - 2) % (branching - 1))
    sums = []
    taken = []
    leaf = merge = 0
    for _ in range(merges):
        first_leaf, first_merge = leaf, merge
        total = 0.0
        for _ in range(size):
            if merge == len(sums) or (
                leaf < leaves and counts[leaf] <= sums[merge]
            ):
                total += counts[leaf]
                leaf += 1
            else:
                total += sums[merge]
                merge += 1
        sums.append(total)
        taken.append((leaf - first_leaf, merge - first_merge))
        size = branching
    return np.asarray(taken, "int64")


def taxonomy_children(paths):
    """Children of the nodes that paths of names describe."""
    root = {}
    for number, path in enumerate(paths):
        require(
            isinstance(path, Sequence | np.ndarray)
            and not isinstance(path, str | bytes),
            "`paths` must have a sequence of names for each class.",
            path=path,
            number=number,
        )
        node = root
        for name in path:
            node = node.setdefault((name,), {})
        # Names are in tuples, to distinguish them from class numbers.
        node[number] = None
    require(root, "`paths` must have at least one class.", paths=paths)
    return _number_children(root)


def _skip(key, below):
    """Replaces a child with only one child by that child."""
    while below is not None and len(below) == 1:
        ((key, below),) = below.items()
    return key, below


def _number_children(root):
    key, below = _skip(None, root)
    rows = [{key: None} if below is None else below]
    counts = []
    entries = []
    classes = []
    # The loop appends to this list.
    for row in rows:
        counts.append(len(row))
        for child in row.items():
            key, below = _skip(*child)
            if below is None:
                classes.append(len(entries))
                entries.append(key)
            else:
                entries.append(len(rows) - 1)
                rows.append(below)
    entries = np.asarray(entries, "int64")
    entries[classes] += len(rows) - 1
    return pad_children(entries, counts)
