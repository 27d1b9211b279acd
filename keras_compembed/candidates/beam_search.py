"""Beam search for the classes of the highest scores in a tree."""

import numpy as np
import tensorflow as tf

from keras_compembed.candidates.selector import without_nan


def find_frontier(tree, max_size):
    """Where a search may begin: as far down as `max_size` entries go.

    A product with all entries of a frontier is faster than look-ups of those
    near the best, and nothing above it is overlooked.

    Args:
        tree: `ClassTree`.
        max_size: Integer, how many entries to score for every example.

    Returns:
        int32 array of entries, in the numbers of `ClassTree.children`, and
        the depth of its inner nodes.
    """
    frontier = _entries(tree.children[0])
    depth = 1
    while True:
        inner = frontier < tree.num_nodes
        below = _entries(tree.children[1 + frontier[inner]])
        size = np.count_nonzero(~inner) + len(below)
        if not inner.any() or size > max_size:
            return frontier, depth
        frontier = np.concatenate([frontier[~inner], below])
        depth += 1


def _entries(children):
    children = np.ravel(children)
    return children[children >= 0]


def find_kinds(tree):
    """What stands at each depth: `"nodes"`, `"classes"` or `"both"`.

    Args:
        tree: `ClassTree`.

    Returns:
        List of strings, from depth 1 down.
    """
    depths = np.bincount(tree.depths(), minlength=tree.depth + 1)[1:]
    kinds = []
    for depth, classes in enumerate(depths):
        nodes = depth < len(tree.level_sizes)
        kinds.append(
            "both" if nodes and classes else "nodes" if nodes else "classes"
        )
    return kinds


def beam_search(search, features, beam_width):
    """Follows the best entries down a tree.

    Args:
        search: Object with
            `frontier()`: entries to begin with and their vectors and biases,
            summed over paths;
            `children(entries)`: entries under inner nodes, -1 where none;
            `entries(entries, kind)`: their own vectors and biases;
            `num_nodes`, and `kinds`, those of the levels below the frontier.
        features: Tensor `(rows, width)`.
        beam_width: Integer, entries that are followed at a time.

    Returns:
        Tensors `(rows, found)`: all classes that the search came to, in no
        order, with -1 for places without one, and their scores, minus
        infinity there.
    """
    num_nodes = search.num_nodes
    entries, vectors, biases = search.frontier()
    scores = without_nan(tf.matmul(features, vectors, transpose_b=True))
    scores += biases
    size = entries.shape[0]
    if not search.kinds:
        entries = tf.broadcast_to(entries, tf.shape(scores))
        return entries - num_nodes, scores
    scores, places = tf.math.top_k(scores, min(beam_width, size))
    entries = tf.gather(entries, places)
    for level, kind in enumerate(search.kinds):
        below = search.children(entries)
        inner = entries < num_nodes
        # Classes wait for the others in the first place under themselves.
        first = tf.concat(
            [
                tf.where(inner, below[..., 0], entries)[..., None],
                below[..., 1:],
            ],
            axis=-1,
        )
        width = below.shape[1] * below.shape[2]
        below = tf.reshape(below, (-1, width))
        vectors, biases = search.entries(below, kind)
        steps = tf.linalg.matvec(vectors, features) + biases
        steps = tf.where(below >= 0, steps, 0.0)
        entries = tf.reshape(first, (-1, width))
        found = tf.repeat(scores, first.shape[2], axis=1) + steps
        found = tf.where(entries >= 0, without_nan(found), float("-inf"))
        if level == len(search.kinds) - 1:
            return tf.maximum(entries - num_nodes, -1), found
        scores, places = tf.math.top_k(found, min(beam_width, width))
        entries = tf.gather(entries, places, batch_dims=1)
        entries = tf.where(scores > float("-inf"), entries, -1)
