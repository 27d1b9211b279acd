"""Children of the nodes of a tree as one array, for trees of all shapes."""

from collections.abc import Sequence

import numpy as np

from keras_compembed.utils.validation import require

# Children of nodes, with padding: 8 GB.
_MOST_ENTRIES = 1 << 31


def pad_children(entries, counts):
    """Rows of different lengths, padded with -1."""
    counts = np.asarray(counts, "int64")
    longest = int(counts.max())
    require(
        len(counts) * longest <= _MOST_ENTRIES,
        "A tree must not have both many nodes and a node of many children, "
        "since each node has room for as many: split the largest.",
        nodes=len(counts),
        children=longest,
    )
    children = np.full((len(counts), longest), -1, "int32")
    children[np.arange(longest) < counts[:, None]] = entries
    return children


def check_children(children, num_classes):
    """Returns children as int32 array without columns of padding, or raises."""
    children = np.asarray(children)
    require(
        children.ndim == 2 and children.size and children.dtype.kind in "iu",
        "`children` must be a matrix of integers, with a row for the root and "
        "for each inner node.",
        shape=children.shape,
        dtype=children.dtype.name,
    )
    num_nodes = len(children) - 1
    most = num_nodes + num_classes - 1
    require(
        children.min() >= -1 and children.max() <= most,
        f"`children` must hold numbers from -1 to {most}, of {num_nodes} inner "
        f"nodes and then num_classes={num_classes} classes.",
        least=int(children.min()),
        largest=int(children.max()),
    )
    there = children >= 0
    wrong = ~there[:, 0] | (there[:, 1:] > there[:, :-1]).any(axis=1)
    require(
        not wrong.any(),
        "`children` must have a child for each node, and -1 only at the ends "
        "of rows.",
        row=int(np.argmax(wrong)),
    )
    times = np.bincount(children[there], minlength=most + 1)
    entry = int(np.argmax(times != 1))
    require(
        times[entry] == 1,
        f"`children` must hold each of {num_nodes} inner nodes and "
        f"num_classes={num_classes} classes once.",
        entry=entry,
        times=int(times[entry]),
    )
    return children[:, there.any(axis=0)].astype("int32")


def sort_levels(children, num_nodes):
    """Numbers inner nodes level by level from the root down."""
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
        "`children` must lead from the root to every node, without a circle.",
        lost_nodes=lost[:1].tolist(),
    )
    if (order != np.arange(num_nodes)).any():
        number = np.empty(num_nodes, "int32")
        number[order] = np.arange(num_nodes)
        children = children[np.concatenate([[0], order + 1])]
        inner = (children >= 0) & (children < num_nodes)
        children[inner] = number[children[inner]]
    return children, tuple(len(level) for level in levels[:-1])


def balanced_parts(num_classes, branching):
    """Into how many parts to split at each level, from the top down."""
    depth, most = 1, branching
    while most < num_classes:
        depth, most = depth + 1, most * branching
    parts = []
    size = num_classes
    while size > branching:
        most //= branching
        parts.append(-(-size // most))
        size = -(-size // parts[-1])
    return parts


def balanced_children(order, level_sizes):
    """Children of nodes that hold given numbers of classes."""
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
    # First the leaves of each merge, then the merges in it.
    is_leaf = np.repeat(np.tile([True, False], len(taken)), taken.ravel())
    entries = np.empty(len(is_leaf), "int64")
    entries[is_leaf] = num_nodes + order
    entries[~is_leaf] = np.arange(num_nodes)
    children = pad_children(entries, taken.sum(axis=1))
    # The root comes last.
    return np.roll(children, 1, axis=0)


def _merge(counts, branching):
    """Merges the least of counts until one is left."""
    # Python's own numbers are faster one by one.
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
    """Children of the nodes that paths of names tell of."""
    root = {}
    for number, path in enumerate(paths):
        require(
            isinstance(path, Sequence | np.ndarray)
            and not isinstance(path, str | bytes),
            "`paths` must hold a sequence of names for each class.",
            path=path,
            number=number,
        )
        node = root
        for name in path:
            node = node.setdefault((name,), {})
        # Names are in tuples, so that a class is told from a name.
        node[number] = None
    require(root, "`paths` must hold at least one class.", paths=paths)
    return _number_children(root)


def _skip(key, below):
    """A child, or what takes its place while it has but one child."""
    while below is not None and len(below) == 1:
        ((key, below),) = below.items()
    return key, below


def _number_children(root):
    key, below = _skip(None, root)
    rows = [{key: None} if below is None else below]
    counts = []
    entries = []
    classes = []
    # The list grows meanwhile.
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
