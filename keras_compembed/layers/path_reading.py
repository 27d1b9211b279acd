"""Sums of the inner nodes above classes, with gradients for these alone."""

import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.read_rows import read_unique_rows
from keras_compembed.optimizers.unique_places import unique_places


def read_above(tree, tables, classes, chosen, room):
    """Sums over the inner nodes above classes.

    From the top down: classes that are near each other share the sums of what
    is above them. In gradients each node comes once.

    Args:
        tree: `TreeArrays` with inner nodes.
        tables: List of Keras variables with a row or a number for each node.
        classes: Integer tensor `(ids,)`. On several devices, the same on all.
        chosen: Integer tensor `(chosen,)`, places in `classes` of those to
            return.
        room: The most classes that there could be, as of `unique_ids`.

    Returns:
        List of tensors `(chosen, ...)`, one for each table.
    """
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
