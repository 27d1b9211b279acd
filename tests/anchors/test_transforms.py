"""Parts of the transform of an `ANTEmbedding`; layers are tested elsewhere."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.anchors import L1
from keras_compembed.anchors import Transform
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.l1 import separation
from keras_compembed.anchors.lazy_rows import DenseRows
from keras_compembed.anchors.lazy_rows import LazyRows
from keras_compembed.anchors.sparse_rows import SparseRows
from keras_compembed.anchors.transform import Mixture
from keras_compembed.anchors.transform import entmax
from keras_compembed.anchors.transform import sparsemax


def by_bisection(row, power):
    """Weights max(row - t, 0) ** power, t found so that they sum to 1."""
    low, high = row.max() - 1, row.max()
    for _ in range(100):
        middle = (low + high) / 2
        total = (np.maximum(row - middle, 0) ** power).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.maximum(row - low, 0) ** power


def random_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 6)) * np.geomspace(0.01, 10, 20)[:, None]
    rows[3, :2] = 0.5
    rows[4] = 0
    return rows


@pytest.mark.parametrize(
    "function, scale, power", [(sparsemax, 1, 1), (entmax, 0.5, 2)]
)
def test_activations_against_bisection_and_slopes(function, scale, power):
    rows = tf.constant(random_rows())
    upstream = tf.constant(np.random.default_rng(1).normal(size=rows.shape))
    with tf.GradientTape() as tape:
        tape.watch(rows)
        weights = function(rows)
    for row, got in zip(rows.numpy(), weights.numpy(), strict=True):
        np.testing.assert_allclose(
            got, by_bisection(scale * row, power), atol=1e-12
        )
    assert np.any(weights == 0)
    gradient = tape.gradient(weights, rows, upstream).numpy()
    step = 1e-6
    for place in ((0, 1), (7, 3), (12, 0), (19, 5)):
        moved = np.zeros(rows.shape)
        moved[place] = step
        apart = function(rows + moved) - function(rows - moved)
        slope = tf.reduce_sum(upstream * apart) / (2 * step)
        np.testing.assert_allclose(gradient[place], slope, atol=1e-6)
    np.testing.assert_array_equal(function(tf.zeros((3, 1))), np.ones((3, 1)))


@pytest.mark.parametrize(
    "optimizer",
    [
        kc.optimizers.SparseRowOptimizer(keras.optimizers.Ftrl()),
        keras.optimizers.Adam(use_ema=True),
    ],
    ids=["ftrl-of-rows", "ema"],
)
def test_optimizers_that_cannot_be_handled(optimizer):
    layer = kc.ANTEmbedding(9, 4, 3)
    model = keras.Sequential([keras.Input((2,), dtype="int32"), layer])
    model.compile(optimizer, "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="ANTEmbedding"):
        model.fit(np.zeros((1, 2), int), np.zeros((1, 2, 4)), verbose=0)


@pytest.mark.parametrize(
    "cls, name, arguments",
    [
        (L1, "l1", {"l1": -1e-5}),
        (L1, "threshold", {"threshold": "adam"}),
        (L1, "target_nonzeros", {"target_nonzeros": 9, "l1": 0}),
        (L1, "negative_weight", {"negative_weight": -1}),
        (Transform, "mixture", {"mixture": "relu"}),
        (Mixture, "num_sets", {"num_sets": 0}),
        (SparseRows, "max_nonzeros", {"max_nonzeros": 0}),
    ],
)
def test_bad_settings(cls, name, arguments):
    with refused(name):
        cls(**arguments)


@pytest.mark.parametrize(
    "input_dim, num_anchors, given, kind",
    [
        (50_000, 50, None, DenseRows),
        (100_000, 50, None, LazyRows),
        (1_000_000, 1000, None, SparseRows),
        (30, 20, "dense", DenseRows),
        (30, 6, "sparse", SparseRows),
        (30, 20, "sparse", SparseRows),
        (30, 20, SparseRows(3), SparseRows),
    ],
)
def test_storage(input_dim, num_anchors, given, kind):
    layer = kc.ANTEmbedding(input_dim, 4, num_anchors, transform=given)
    assert type(layer.storage) is kind and layer.storage is not given
    if given == "sparse":
        assert layer.storage.max_nonzeros == min(16, num_anchors)


@pytest.mark.parametrize("storage", ["dense", "lazy", "sparse"])
@pytest.mark.parametrize("non_negative", [True, False])
def test_first_numbers(storage, non_negative):
    """Objects that are anchors start as themselves, others small."""
    layer = kc.ANTEmbedding(
        9,
        4,
        6,
        anchors=Given(ids=[-1, 7, 3, -1, -1, -1]),
        l1=L1(1e-4, non_negative=non_negative),
        transform=SparseRows(4) if storage == "sparse" else storage,
    )
    layer.build()
    start = layer.get_transform().dense_rows()
    np.testing.assert_array_equal(start[[7, 3]], np.eye(6)[[1, 2]])
    others = np.delete(start, [3, 7], axis=0)
    assert 0 < np.abs(others).max() <= 0.1
    assert (others >= 0).all() == non_negative
    assert np.count_nonzero(others) == 7 * 4


def test_padding_is_in_no_negative_pair():
    rows = np.random.default_rng(0).random((3, 6)).astype("float32")
    found = separation(tf.constant([0, 8, 5]), rows, 1.0, mask_zero=True)
    np.testing.assert_allclose(found, rows[1] @ rows[2], rtol=1e-6)
