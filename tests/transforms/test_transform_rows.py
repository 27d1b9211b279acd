"""Each way to hold a transform by itself, without a layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from row_parts import NUM_ANCHORS
from row_parts import NUM_ROWS
from row_parts import build_rows

from keras_compembed.anchors import Relations
from keras_compembed.optimizers.running_optimizer import StepSize
from keras_compembed.transforms import L1
from keras_compembed.transforms import DenseRows
from keras_compembed.transforms import FixedRows
from keras_compembed.transforms import LazyRows
from keras_compembed.transforms import SparseRows
from keras_compembed.transforms import SparseTransform
from keras_compembed.transforms.registry import choose_storage
from keras_compembed.transforms.registry import get_l1
from keras_compembed.transforms.registry import get_mixture
from keras_compembed.transforms.registry import get_storage

TRAINED = {
    "dense": DenseRows,
    "lazy": LazyRows,
    "sparse": lambda: SparseRows(3),
}


def matrix():
    """Up to 3 numbers in a row, of both signs, and none in one row."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(NUM_ROWS, NUM_ANCHORS)).astype("float32")
    dense[np.argsort(rng.random(dense.shape), axis=1) < 2] = 0
    dense[7] = 0
    return dense


def sparse(dense):
    return SparseTransform.from_parts([dense], NUM_ANCHORS)


def soft_threshold(rows, threshold):
    return np.sign(rows) * np.maximum(np.abs(rows) - threshold, 0)


@pytest.mark.parametrize("kind", [*TRAINED, "fixed"])
def test_rows_that_were_loaded(kind):
    dense = matrix()
    transform = sparse(dense)
    if kind == "fixed":
        rows = build_rows(FixedRows.for_transform(transform))
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="configuration alone"
        ):
            rows.read(tf.constant([0]), None)
    else:
        rows = build_rows(TRAINED[kind](), L1(non_negative=False))
    rows.load(transform)
    ids = [7, 0, 11]
    np.testing.assert_array_equal(rows.read(tf.constant(ids), None), dense[ids])
    np.testing.assert_array_equal(rows.read_all(), dense)
    np.testing.assert_array_equal(rows.to_sparse().dense_rows(), dense)
    trained = [one for one in rows.variables if one.trainable]
    assert trained == ([] if kind == "fixed" else [rows.variable])
    if kind != "fixed":
        assert int(rows.count()) == np.count_nonzero(dense)


@pytest.mark.parametrize("kind", TRAINED)
def test_steps_shrink_all_rows_but_free_entries(kind):
    dense = matrix()
    # Column 0 stands for id 4, to which ids 2 and 3 are related.
    dense[2:4, 0] = [1.5, -0.01]
    dense[2:4, 1:3] = 0
    rows = build_rows(
        TRAINED[kind](),
        L1(0.2, non_negative=False, threshold="learning_rate"),
        Relations([[4, 2], [4, 3]], NUM_ROWS),
        [4, -1, -1, -1, -1],
    )
    rows.load(sparse(dense))
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([rows.variable])
    for _ in range(3):
        step = StepSize(optimizer, rows.variable, by_coordinate=False)
        rows.after_step(step, step.scale * 0.2)
    expected = soft_threshold(dense, 0.3)
    expected[2:4, 0] = dense[2:4, 0]
    np.testing.assert_allclose(rows.read_all(), expected, atol=1e-6)
    assert int(rows.count()) == np.count_nonzero(expected)
    rows.settle()
    np.testing.assert_allclose(rows.read_all(), expected, atol=1e-6)


@pytest.mark.parametrize("kind", TRAINED)
def test_state_comes_back(kind):
    rows, again = (build_rows(TRAINED[kind]()) for _ in range(2))
    rows.load(sparse(np.abs(matrix())))
    again.load(rows.to_sparse())
    again.load_state(rows.state())
    for one, other in zip(rows.variables, again.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_free_places_take_the_columns_that_help_most():
    rows = build_rows(SparseRows(2), L1(0.1))
    rows.load(sparse(np.zeros((NUM_ROWS, NUM_ANCHORS), "float32")))
    before = rows.columns.numpy()
    upstream = tf.constant([[-0.05, 3.0, -0.3, -2.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(rows.variable.value)
        read = rows.read(tf.constant([6]), None)
    gradient = tape.gradient(read, rows.variable.value, upstream)
    after = rows.columns.numpy()
    # Gradients below l1 move nothing, and numbers cannot become negative.
    assert set(after[6]) == {2, 3}
    np.testing.assert_array_equal(
        np.sort(tf.convert_to_tensor(gradient)[6]), np.float32([-2, -0.3])
    )
    np.testing.assert_array_equal(
        np.delete(after, 6, axis=0), np.delete(before, 6, axis=0)
    )


def test_storage_from_what_users_pass():
    for name, kind in (
        ("dense", DenseRows),
        ("lazy", LazyRows),
        ("sparse", SparseRows),
    ):
        assert type(get_storage(name, 30, 20)) is kind
    assert get_storage("sparse", 30, 20).max_nonzeros == 16
    assert get_storage("sparse", 30, 6).max_nonzeros == 6
    for given in (SparseRows(3), FixedRows(8, 2), LazyRows()):
        rows = get_storage(given, 30, 20)
        assert rows is not given and given.num_rows is None
        assert type(rows) is type(given)
        assert rows.get_config() == given.get_config()
        config = keras.saving.serialize_keras_object(given)
        again = get_storage(config, 30, 20)
        assert type(again) is type(given)
        assert again.get_config() == given.get_config()
    assert type(get_storage(None, 30, 20)) is DenseRows


def test_default_storage():
    assert choose_storage(50_000, 50) == "dense"
    assert choose_storage(100_000, 50) == "lazy"
    assert choose_storage(1_000_000, 1000) == "sparse"


def test_other_settings_from_what_users_pass():
    assert get_l1(0.5).l1 == 0.5
    given = L1(0.5, threshold="learning_rate")
    again = get_l1(given)
    assert again is not given
    assert again.get_config() == given.get_config()
    assert get_mixture(None).activation is None
    assert get_mixture("softmax").activation == "softmax"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SparseRows(0), "`max_nonzeros` must be a positive integer"),
        (lambda: FixedRows(-1, 0), "`num_nonzeros` must be an integer of at"),
        (lambda: get_storage(SparseRows(7), 30, 6), "at most `num_anchors`"),
        (lambda: get_storage("csr", 30, 6), "`storage` must be None, 'dense'"),
        (lambda: get_storage(4, 30, 6), "`storage` must be None, 'dense'"),
        (lambda: get_l1("large"), "`l1` must be a number of at least 0, or"),
        (lambda: get_mixture(2), "`mixture` must be None"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
