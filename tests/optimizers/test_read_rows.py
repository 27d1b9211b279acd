import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.optimizers.read_rows import read_rows


class Table(keras.layers.Layer):
    """Rows of a table, by `read_rows` or by a product with a dense gradient."""

    def __init__(self, sparse, **kwargs):
        super().__init__(**kwargs)
        self.sparse = sparse
        self.table = self.add_weight(
            shape=(20, 4),
            initializer=keras.initializers.RandomNormal(seed=0),
            name="table",
        )

    def call(self, ids):
        flat = tf.reshape(ids, (-1,))
        if self.sparse:
            rows = read_rows(self.table, flat)
        else:
            rows = tf.matmul(tf.one_hot(flat, 20), self.table.value)
        return tf.reshape(rows, (-1, ids.shape[1], 4))

    def compute_output_shape(self, shape):
        return (*shape, 4)


def fit(scope, sparse):
    with scope:
        model = keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                Table(sparse),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(
                    3,
                    kernel_initializer=keras.initializers.RandomNormal(seed=1),
                ),
            ]
        )
        model.compile(keras.optimizers.Adam(0.05, epsilon=1e-3), "mse")
    rng = np.random.default_rng(0)
    # Few ids: many repeated, on a device and on both.
    x, y = rng.integers(9, size=(48, 5)), rng.normal(size=(48, 3))
    history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
    return [*model.get_weights(), *history.history["loss"]]


def test_rows():
    table = keras.Variable(np.arange(12.0).reshape(6, 2), dtype="float32")
    for ids in ([3, 0, 3, 3, 5], [], [2]):
        rows = read_rows(table, tf.constant(ids, "int32"))
        assert rows.shape == (len(ids), 2)
        np.testing.assert_array_equal(rows, table.numpy()[np.int32(ids)])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gradients_come_once(dtype):
    table = keras.Variable(np.arange(12.0).reshape(6, 2), dtype="float32")
    ids = tf.constant([3, 0, 3, 3, 5], dtype)
    upstream = tf.constant([[1.0, 2], [3, 4], [5, 6], [7, 8], [9, 10]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(read_rows(table, ids) * upstream)
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert sorted(gradient.indices.numpy()) == [0, 3, 5]
    expected = np.zeros((6, 2))
    np.add.at(expected, ids.numpy(), upstream.numpy())
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), expected)


def test_gradients_come_once_over_devices(strategy):
    with strategy.scope():
        table = keras.Variable(np.arange(12.0).reshape(6, 2), dtype="float32")

    def step():
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        ids = tf.where(first, [1, 2, 2], [2, 5, 1])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(read_rows(table, ids))
        gradient = tape.gradient(loss, table.value)
        return gradient.indices, gradient.values

    indices, values = strategy.run(tf.function(step))
    found = {}
    for rows, gradients in zip(
        strategy.experimental_local_results(indices),
        strategy.experimental_local_results(values),
        strict=True,
    ):
        for row, gradient in zip(rows.numpy(), gradients.numpy(), strict=True):
            if gradient.any():
                assert row not in found
                found[int(row)] = gradient.tolist()
    assert found == {1: [2.0, 2.0], 2: [3.0, 3.0], 5: [1.0, 1.0]}


def test_equal_to_a_dense_gradient(strategy):
    dense = fit(contextlib.nullcontext(), sparse=False)
    for scope in (contextlib.nullcontext(), strategy.scope()):
        for a, b in zip(fit(scope, sparse=True), dense, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
