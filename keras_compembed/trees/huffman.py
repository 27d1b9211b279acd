"""Huffman trees of any branching."""

import numpy as np

from keras_compembed.trees.tree_children import pad_children


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
    # The root comes last and is to be first.
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
