"""Beam search for the classes of the highest scores in a tree."""

import numpy as np
import tensorflow as tf

from keras_compembed.utils.log_sums import without_nan


def find_frontier(tree, max_size):
    """Where a search may begin: as far down as `max_size` entries go."""
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


def beam_search(tree, frontier, number, kinds, read, features, beam_width):
    """Follows the best inner nodes down a tree: Algorithm 2."""
    entries, vectors, biases = frontier
    scores = tf.matmul(features, vectors, transpose_b=True) + biases
    scores = without_nan(scores)
    entries = tf.broadcast_to(entries, tf.shape(scores))
    met = []
    if number < entries.shape[1]:
        met.append((entries[:, number:], scores[:, number:]))
    nodes, scores = _best(entries[:, :number], scores[:, :number], beam_width)
    for kind in kinds:
        below = tree.under(nodes)
        branching = below.shape[2]
        entries = tf.reshape(below, (-1, nodes.shape[1] * branching))
        vectors, biases = read(entries, kind)
        scores = tf.repeat(scores, branching, axis=1)
        scores += own_products(vectors, features) + biases
        scores = tf.where(entries >= 0, without_nan(scores), float("-inf"))
        if kind == "classes":
            met.append((entries, scores))
            break
        if kind == "both":
            inner = entries < tree.num_nodes
            met.append(_only(tf.logical_not(inner), entries, scores))
            entries, scores = _only(inner, entries, scores)
        nodes, scores = _best(entries, scores, beam_width)
    entries = tf.concat([entries for entries, _ in met], axis=1)
    scores = tf.concat([scores for _, scores in met], axis=1)
    return tf.maximum(entries - tree.num_nodes, -1), scores


def own_products(vectors, features):
    """Products of the vectors of each row with its features."""
    if features.shape[0] == 1:
        # The same, as the one kind of product that is fast on phones, without
        # the copy that `vectors[0]` is there.
        vectors = tf.reshape(vectors, (-1, features.shape[1]))
        return tf.matmul(features, vectors, transpose_b=True)
    return tf.linalg.matvec(vectors, features)


def _best(nodes, scores, beam_width):
    scores, places = tf.math.top_k(scores, min(beam_width, nodes.shape[1]))
    nodes = tf.gather(nodes, places, batch_dims=1)
    return tf.where(scores > float("-inf"), nodes, -1), scores


def _only(condition, entries, scores):
    return (
        tf.where(condition, entries, -1),
        tf.where(condition, scores, float("-inf")),
    )
