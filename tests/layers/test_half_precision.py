"""Layers learn in float16, with scaled losses, what they learn in float32."""

import contextlib

import keras
import multi_worker
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

POLICY = "mixed_float16"


@pytest.fixture(autouse=True)
def float32():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["anchors", "codes", "tree", "labels"])
def test_losses_are_near_those_of_float32(name):
    strategy = tf.distribute.get_strategy()
    expected = multi_worker.train(name, strategy)["history loss"]
    keras.config.set_dtype_policy(POLICY)
    make, _ = multi_worker.MODELS[name]
    assert isinstance(make().optimizer, keras.optimizers.LossScaleOptimizer)
    found = multi_worker.train(name, strategy)
    # Of products in 11 bits; what is chosen by them, codes and candidates,
    # may differ.
    np.testing.assert_allclose(found["history loss"], expected, rtol=0.02)
    assert found["history loss"] != expected
    for key, value in found.items():
        assert np.isfinite(np.asarray(value, "float64")).all(), key


def nonzeros(scope, sparse=False, run_eagerly=True):
    """Non-zeros of a layer that was trained in the global dtype policy."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    ids = rng.integers(600, size=(256, 5))
    with scope:
        layer = kc.ANTEmbedding(
            600, 8, num_anchors=20, l1=0.1, transform="sparse"
        )
        model = keras.Sequential(
            [layer, keras.layers.Flatten(), keras.layers.Dense(1)]
        )
        optimizer = keras.optimizers.Adam(0.02)
        if sparse:
            optimizer = kc.optimizers.SparseRowOptimizer(optimizer)
        model.compile(
            optimizer, "mse", jit_compile=False, run_eagerly=run_eagerly
        )
    data = tf.data.Dataset.from_tensor_slices((ids, ids.sum(1) % 2))
    model.fit(data.batch(32), epochs=4, verbose=0, shuffle=False)
    return layer.nnz


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_columns_of_sparse_rows_are_taken_as_in_float32(sparse):
    """By their gradients, which are those of scaled losses."""
    expected = nonzeros(contextlib.nullcontext(), sparse)
    keras.config.set_dtype_policy(POLICY)
    found = nonzeros(contextlib.nullcontext(), sparse)
    assert abs(found / expected - 1) < 0.05


@pytest.mark.slow
def test_columns_of_sparse_rows_on_two_devices(strategy):
    expected = nonzeros(contextlib.nullcontext(), run_eagerly=False)
    keras.config.set_dtype_policy(POLICY)
    found = nonzeros(strategy.scope(), run_eagerly=False)
    assert abs(found / expected - 1) < 0.05


def features():
    encoder = keras.layers.Dense(4, dtype="mixed_bfloat16")
    return kc.FeatureEmbedding(
        np.ones((50, 3)), encoder, dtype="mixed_bfloat16"
    )


REPEATED = {
    "codes": lambda: kc.CodeEmbedding(50, 8, 4, 16, dtype="bfloat16"),
    "learned codes": lambda: kc.CodeEmbedding(
        50,
        8,
        4,
        16,
        composition="concat",
        codes="softmax",
        dtype="bfloat16",
    ),
    "anchors": lambda: kc.ANTEmbedding(50, 8, 5, dtype="bfloat16"),
    "sparse anchors": lambda: kc.ANTEmbedding(
        50, 8, 5, transform="sparse", dtype="bfloat16"
    ),
    "features": features,
    "vocabulary": lambda: kc.PrunedVocabularyEmbedding(
        50, 8, 10, dtype="bfloat16"
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_gradients_of_an_id_that_is_often_there_are_summed(name):
    """Padding is: 256 + 1 is 256 in bfloat16."""
    keras.utils.set_random_seed(0)
    layer = REPEATED[name]()
    layer.build((None,))
    weights = [weight.value for weight in layer.trainable_weights]
    found = []
    for often in (1, 2048):
        with tf.GradientTape() as tape:
            vectors = layer(tf.fill((often,), 3), training=True)
        gradients = tape.gradient(vectors, weights, tf.ones_like(vectors))
        found.append(
            [
                tf.reduce_max(
                    tf.abs(tf.cast(tf.convert_to_tensor(x), "float32"))
                )
                for x in gradients
            ]
        )
    np.testing.assert_allclose(found[1], 2048 * np.array(found[0]), rtol=0.01)


def test_gradients_of_a_row_that_many_ids_share_are_summed():
    found = []
    for dtype in ("float32", "bfloat16"):
        layer = kc.PrunedVocabularyEmbedding(8192, 8, 2, dtype=dtype)
        layer.build()
        with tf.GradientTape() as tape:
            vectors = layer(tf.range(8192), training=True)
        gradient = tape.gradient(
            vectors, layer.table.value, tf.ones_like(vectors)
        )
        found.append(tf.cast(tf.convert_to_tensor(gradient), "float32"))
    np.testing.assert_allclose(*found, rtol=0.01)
