import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES

from keras_compembed.trees.path_sums import read_above
from keras_compembed.trees.path_sums import sum_above
from keras_compembed.trees.path_sums import sum_down_to
from keras_compembed.trees.tree_arrays import TreeArrays

NAMES = [name for name in TREES if name != "one level"]


def make(name):
    """A tree, and a matrix and a vector with numbers for its inner nodes."""
    arrays = TreeArrays(TREES[name]())
    arrays.build()
    rng = np.random.default_rng(0)
    shapes = (arrays.num_nodes, 3), (arrays.num_nodes,)
    return arrays, [
        keras.Variable(rng.normal(size=shape), dtype="float32")
        for shape in shapes
    ]


def sum_up(tree, values, node):
    total = np.zeros(values.shape[1:])
    while node >= 0:
        total = total + values[node]
        node = tree.node_parents[node]
    return total


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    arrays, tables = make(name)
    tree = arrays.class_tree
    ids = np.arange(arrays.num_classes)[::-1]
    for table in tables:
        values = table.numpy()
        right = [sum_up(tree, values, tree.class_parents[k]) for k in ids]
        got = sum_above(
            lambda nodes, values=values: tf.gather(values, nodes),
            arrays.ancestors(tf.constant(ids, "int32")),
        )
        np.testing.assert_allclose(got, right, atol=1e-5)
        ends = np.cumsum(tree.level_sizes)
        for depth, end in enumerate(ends, 1):
            nodes = np.arange(end - tree.level_sizes[depth - 1], end)
            np.testing.assert_allclose(
                sum_down_to(arrays, table, depth),
                [sum_up(tree, values, node) for node in nodes],
                atol=1e-5,
            )


@pytest.mark.parametrize("name", NAMES)
def test_sums_with_gradients(name):
    """Each node that is above some class comes once in gradients."""
    arrays, tables = make(name)
    tree = arrays.class_tree
    ids = np.array([1, 5, 1, 2, 7], "int32")
    chosen = np.array([0, 1, 3, 4], "int32")
    weights = np.array([1.0, 2, 3, 4], "float32")
    with tf.GradientTape() as tape:
        vectors, biases = read_above(
            arrays, tables, tf.constant(ids), tf.constant(chosen), None
        )
        total = tf.reduce_sum(vectors * weights[:, None] + biases[:, None])
    gradients = tape.gradient(total, [table.value for table in tables])
    above = np.zeros((len(chosen), arrays.num_nodes))
    for row, k in zip(above, ids[chosen], strict=True):
        node = tree.class_parents[k]
        while node >= 0:
            row[node] = 1
            node = tree.node_parents[node]
    for got, table in zip((vectors, biases), tables, strict=True):
        np.testing.assert_allclose(got, above @ table.numpy(), atol=1e-5)
    rights = (
        np.repeat(above.T @ weights[:, None], 3, axis=1),
        3 * above.sum(axis=0),
    )
    for gradient, right in zip(gradients, rights, strict=True):
        slices = gradient.indices.numpy()
        assert len(set(slices)) == len(slices)
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), right, atol=1e-5
        )
