"""A class tree as weights of a layer, and sums over its paths."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.read_rows import read_unique_rows
from keras_compembed.optimizers.unique_places import unique_places
from keras_compembed.trees.class_tree import ClassTree
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array


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
        # What stands at each depth.
        classes = np.bincount(tree.depths(), minlength=tree.depth + 1)[1:]
        kinds = ["both" if number else "nodes" for number in classes[:-1]]
        self.kinds = *kinds, "classes"

    def build(self, input_shape=None):
        if self.built:
            return
        tree = self.class_tree
        self.children = self._add("children", tree.children)
        self.class_parents = self._add("class_parents", tree.class_parents)
        self.node_parents = self._add("node_parents", tree.node_parents)
        self.built = True

    def _add(self, name, array):
        return self.add_weight(
            name=name,
            shape=array.shape,
            dtype="int32",
            initializer=lambda shape, dtype: array,
            trainable=False,
        )

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
        """Entries under entries, of any shape; -1 under classes and -1."""
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
    """Sums over the inner nodes above classes."""
    total = 0.0
    # One after the other: all at once take depth times the memory.
    for nodes in tf.unstack(ancestors, axis=1):
        rows = rows_of(tf.maximum(nodes, 0))
        exist = tf.reshape(nodes >= 0, (-1, *[1] * (rows.shape.rank - 1)))
        total += tf.where(exist, rows, 0.0)
    return total


def sum_down_to(tree, table, depth):
    """Sums over the paths to all inner nodes of a depth, without gradients."""
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
    """Sums over the inner nodes above classes."""
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
            # Classes that hang elsewhere take a row of zeros.
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
    """Nodes above classes, a tensor for each level; less if there is none."""
    nodes = gather_rows(tree.class_parents, classes)
    levels = []
    for start in reversed(tree.level_starts):
        levels.append(nodes)
        above = gather_rows(tree.node_parents, tf.maximum(nodes, 0))
        nodes = tf.where(nodes >= start, above, nodes)
    return levels[::-1]
