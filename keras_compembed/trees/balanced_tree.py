"""Trees whose classes are all about as deep."""

import numpy as np

from keras_compembed.trees.tree_children import pad_children


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
    entries = [
        np.arange(above),
        lowest,
        np.repeat(bottom > 1, bottom).nonzero()[0],
    ]
    entries[2] = classes[entries[2]]
    return pad_children(
        np.concatenate(entries), np.concatenate([*counts, bottom[bottom > 1]])
    )
