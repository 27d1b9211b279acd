import json

import keras
import numpy as np
import pytest
from beam_heads import TREES

from keras_compembed.trees import ClassTree
from keras_compembed.trees.tree_arrays import TreeArrays


def make(name):
    arrays = TreeArrays(TREES[name]())
    arrays.build()
    return arrays


@pytest.mark.parametrize("name", TREES)
def test_attributes(name):
    tree, arrays = TREES[name](), make(name)
    for attribute in (
        "num_classes",
        "num_nodes",
        "branching",
        "depth",
        "level_sizes",
    ):
        assert getattr(arrays, attribute) == getattr(tree, attribute)
    assert arrays.class_tree is not None
    for attribute in ("children", "class_parents", "node_parents"):
        weight = getattr(arrays, attribute)
        assert weight.dtype == "int32"
        np.testing.assert_array_equal(weight, getattr(tree, attribute))
    ends = np.cumsum(tree.level_sizes, dtype=int)
    assert arrays.level_starts == tuple(ends - tree.level_sizes)
    assert not arrays.trainable_weights


@pytest.mark.parametrize("name", TREES)
def test_ancestors(name):
    tree, arrays = TREES[name](), make(name)
    classes = np.random.default_rng(0).permutation(tree.num_classes)
    got = arrays.ancestors(classes).numpy()
    assert got.shape == (tree.num_classes, tree.depth - 1)
    for row, path in zip(got, tree.paths()[classes], strict=True):
        # From the class up, where paths are from the root down.
        path = path[path >= 0][::-1]
        assert list(row) == [*path, *[-1] * (len(row) - len(path))]


@pytest.mark.parametrize("name", TREES)
def test_under(name):
    tree, arrays = TREES[name](), make(name)
    inner = np.arange(tree.num_nodes)
    below = arrays.under(inner[:, None])
    np.testing.assert_array_equal(below[:, 0], tree.children[1:])
    others = [-1, tree.num_nodes, tree.num_nodes + tree.num_classes - 1]
    below = arrays.under(np.array([others]))
    assert below.shape == (1, 3, tree.branching)
    assert (below.numpy() == -1).all()


@pytest.mark.parametrize("name", ["taxonomy", "one level"])
def test_config_and_weights(name):
    tree, arrays = TREES[name](), make(name)
    config = json.loads(json.dumps(arrays.get_config()))
    again = TreeArrays.from_config(config)
    assert json.loads(json.dumps(again.get_config())) == config
    again.build()
    for weight, right in zip(again.weights, arrays.weights, strict=True):
        np.testing.assert_array_equal(weight, right)
    restored = again.class_tree
    assert isinstance(restored, ClassTree)
    np.testing.assert_array_equal(restored.children, tree.children)
    assert restored.level_sizes == tree.level_sizes
    classes = np.arange(tree.num_classes)
    np.testing.assert_array_equal(
        again.ancestors(classes), arrays.ancestors(classes)
    )


def test_building_twice_keeps_weights():
    arrays = make("taxonomy")
    children = arrays.children
    arrays.build()
    assert arrays.children is children


def test_registered_name():
    name = keras.saving.get_registered_name(TreeArrays)
    assert name == "keras_compembed>TreeArrays"
