"""A class tree as weights of a layer, with path sums and beam search."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.classes.class_tree import ClassTree
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import read_unique_rows
from keras_compembed.optimizers.device_rows import unique_places
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.tensor_ops import without_nan


@keras.saving.register_keras_serializable(package="keras_compembed")
class TreeArrays(WholeLoad, keras.layers.Layer):
    """A `ClassTree` as integer weights, saved with the model."""

    def __init__(self, tree, means_width=None, **kwargs):
        super().__init__(**kwargs)
        self.class_tree = tree
        self.means_width = means_width
        if tree.class_means is not None:
            self.means_width = int(tree.class_means.shape[1])
        self.num_classes = tree.num_classes
        self.num_nodes = tree.num_nodes
        self.branching = tree.branching
        self.level_sizes = tuple(tree.level_sizes)
        # Nodes are numbered level by level.
        ends = itertools.accumulate(self.level_sizes, initial=0)
        self.level_starts = tuple(ends)[:-1]
        # The kinds of entries at each depth.
        classes = np.bincount(tree.depths(), minlength=tree.depth + 1)[1:]
        kinds = ["both" if number else "nodes" for number in classes[:-1]]
        self.kinds = *kinds, "classes"

    def build(self, input_shape=None):
        if self.built:
            return
        tree = self.class_tree
        for name in ("children", "class_parents", "node_parents"):
            setattr(self, name, self._add_state(name, getattr(tree, name)))

    def ancestors(self, classes):
        """Inner nodes above classes."""
        if not self.num_nodes:
            return tf.zeros((tf.size(classes), 0), "int32")
        nodes = gather_rows(self.class_parents, classes)
        path = [nodes]
        for _ in self.level_sizes[1:]:
            above = gather_rows(self.node_parents, tf.maximum(nodes, 0))
            nodes = tf.where(nodes >= 0, above, -1)
            path.append(nodes)
        return tf.stack(path, axis=1)

    def under(self, entries):
        """Children of entries of any shape; -1 below classes and -1."""
        inner = (entries >= 0) & (entries < self.num_nodes)
        places = tf.where(inner, entries + 1, 0)
        below = gather_rows(self.children, places)
        return tf.where(inner[..., None], below, -1)

    def get_config(self):
        return {
            **super().get_config(),
            "tree": {
                "children": pack_array(self.class_tree.children),
                "num_classes": self.num_classes,
            },
            "means_width": self.means_width,
        }

    @classmethod
    def from_config(cls, config):
        tree = dict(config["tree"])
        tree["children"] = unpack_array(tree["children"])
        return cls(**{**config, "tree": ClassTree(**tree)})


def sum_above(rows_of, ancestors):
    """Sums of rows over the inner nodes above classes."""
    total = 0.0
    # One level at a time: all at once need `depth` times the memory.
    for nodes in tf.unstack(ancestors, axis=1):
        rows = rows_of(tf.maximum(nodes, 0))
        exist = tf.reshape(nodes >= 0, (-1, *[1] * (rows.shape.rank - 1)))
        total += tf.where(exist, rows, 0.0)
    return total


def sum_down_to(tree, table, depth):
    """Sums over the paths to all inner nodes at a depth, without gradients."""
    sizes = tree.level_sizes[:depth]
    nodes = tf.range(sum(sizes))
    rows = tf.split(gather_rows(table, nodes), sizes)
    parents = tf.split(gather_rows(tree.node_parents, nodes), sizes)
    total = rows[0]
    for level in range(1, depth):
        above = parents[level] - tree.level_starts[level - 1]
        total = rows[level] + tf.gather(total, above)
    return total


def read_above(tree, tables, classes, chosen, room):
    """Sums of several tables over the inner nodes above classes."""
    levels = _ancestors_by_level(tree, classes)
    starts = tree.level_starts
    with_classes = [kind != "nodes" for kind in tree.kinds]
    several = sum(with_classes) > 1
    totals = [0.0] * len(tables)
    sums = above = None
    for level, nodes in enumerate(levels):
        start, size = starts[level], tree.level_sizes[level]
        firsts, places = unique_places(nodes - start, size)
        ids = tf.gather(nodes, firsts)
        rows = [read_unique_rows(table, ids, room) for table in tables]
        if sums is not None:
            parents = tf.gather(above, firsts)
            rows = [
                own + tf.gather(upper, parents)
                for own, upper in zip(rows, sums, strict=True)
            ]
        sums, above = rows, places
        if not with_classes[level + 1]:
            continue
        if several:
            # Classes at other levels take a row of zeros.
            here = nodes >= start
            if level + 1 < len(levels):
                here &= levels[level + 1] < starts[level + 1]
            places = tf.where(here, places + 1, 0)
            rows = [
                tf.concat([tf.zeros((1, *row.shape[1:])), row], axis=0)
                for row in rows
            ]
        places = tf.gather(places, chosen)
        totals = [
            total + tf.gather(row, places)
            for total, row in zip(totals, rows, strict=True)
        ]
    return totals


def _ancestors_by_level(tree, classes):
    """Inner nodes above classes, by level, from the top down."""
    nodes = gather_rows(tree.class_parents, classes)
    levels = []
    for start in reversed(tree.level_starts):
        levels.append(nodes)
        above = gather_rows(tree.node_parents, tf.maximum(nodes, 0))
        nodes = tf.where(nodes >= start, above, nodes)
    return levels[::-1]


def find_frontier(tree, max_size):
    """The entries that a search starts from: up to `max_size` of them."""
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
    """Follows the best inner nodes down a tree (Algorithm 2)."""
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
        # A matrix product, which is fast on phones. Slicing `vectors[0]` would
        # make a copy there.
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
