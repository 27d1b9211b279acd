"""Sums of what the inner nodes of a class tree hold, over its paths."""

import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.read_rows import read_unique_rows
from keras_compembed.optimizers.unique_places import unique_places


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
