"""Children of the nodes of a tree as one array."""

import numpy as np

# Children of nodes, with padding: 8 GB.
_MOST_ENTRIES = 1 << 31


def pad_children(entries, counts):
    """Rows of different lengths, padded with -1."""
    counts = np.asarray(counts, "int64")
    longest = int(counts.max())
    if len(counts) * longest > _MOST_ENTRIES:
        raise ValueError(
            "A tree must not have both many nodes and a node of many "
            "children, since each node has room for as many: split the "
            f"largest. Received: {len(counts)} nodes, of up to {longest} "
            "children."
        )
    children = np.full((len(counts), longest), -1, "int32")
    children[np.arange(longest) < counts[:, None]] = entries
    return children


def check_children(children, num_classes):
    """Returns children as int32 array without columns of padding, or raises."""
    children = np.asarray(children)
    if (
        children.ndim != 2
        or not children.size
        or children.dtype.kind not in "iu"
    ):
        raise ValueError(
            "`children` must be a matrix of integers, with a row for the root "
            "and for each inner node. Received: an array of shape "
            f"{children.shape} and dtype {children.dtype}."
        )
    num_nodes = len(children) - 1
    most = num_nodes + num_classes - 1
    if children.min() < -1 or children.max() > most:
        raise ValueError(
            f"`children` must hold numbers from -1 to {most}, of "
            f"{num_nodes} inner nodes and then num_classes={num_classes} "
            f"classes. Received: numbers from {children.min()} to "
            f"{children.max()}."
        )
    there = children >= 0
    _raise_for_row(~there[:, 0], "must have a child for each node", "none")
    _raise_for_row(
        (there[:, 1:] > there[:, :-1]).any(axis=1),
        "must have -1 only at the ends of rows",
        "others after it",
    )
    times = np.bincount(children[there], minlength=most + 1)
    if (times != 1).any():
        entry = int(np.argmax(times != 1))
        kind, number = "inner node", entry
        if entry >= num_nodes:
            kind, number = "class", entry - num_nodes
        raise ValueError(
            f"`children` must hold each of {num_nodes} inner nodes and "
            f"num_classes={num_classes} classes once. Received: {kind} "
            f"{number} {times[entry]} times."
        )
    return children[:, there.any(axis=0)].astype("int32")


def _raise_for_row(bad, rule, received):
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"`children` {rule}. Received: {received} in row {row}."
        )


def sort_levels(children, num_nodes):
    """Numbers inner nodes level by level from the root down."""
    levels = []
    rows = np.zeros(1, "int64")
    while len(rows):
        below = children[rows].ravel()
        rows = below[(below >= 0) & (below < num_nodes)].astype("int64") + 1
        levels.append(rows)
    order = np.concatenate(levels) - 1
    if len(order) < num_nodes:
        lost = np.setdiff1d(np.arange(num_nodes), order)
        raise ValueError(
            "`children` must lead from the root to every node. Received: a "
            f"circle of nodes at or above node {lost[0]}."
        )
    if (order != np.arange(num_nodes)).any():
        number = np.empty(num_nodes, "int32")
        number[order] = np.arange(num_nodes)
        children = children[np.concatenate([[0], order + 1])]
        inner = (children >= 0) & (children < num_nodes)
        children[inner] = number[children[inner]]
    return children, tuple(len(level) for level in levels[:-1])
