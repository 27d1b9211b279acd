"""Trees that are given as names."""

from collections.abc import Sequence

import numpy as np

from keras_compembed.trees.tree_children import pad_children


def taxonomy_children(paths):
    """Children of the nodes that paths of names tell of."""
    root = {}
    for number, path in enumerate(paths):
        if isinstance(path, (str, bytes)) or not isinstance(
            path, (Sequence, np.ndarray)
        ):
            raise ValueError(
                "`paths` must hold a sequence of names for each class. "
                f"Received: {path!r} for class {number}."
            )
        node = root
        for name in path:
            node = node.setdefault((name,), {})
        # Names are in tuples, so that a class is told from a name.
        node[number] = None
    if not root:
        raise ValueError(
            "`paths` must hold at least one class. Received: none."
        )
    return _children(root)


def _skip(key, below):
    """A child, or what takes its place while it has but one child."""
    while below is not None and len(below) == 1:
        ((key, below),) = below.items()
    return key, below


def _children(root):
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
