"""Scores and best rows from codes, against products with rows in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_checks import random_codes

import keras_compembed as kc
from keras_compembed import Reverse
from keras_compembed.layers.top_classes import TopIds

V, D = 53, 6
# Bits that share bytes, fill them, cross them, and take two.
SHAPES = [(3, 2), (4, 16), (5, 7), (2, 300)]
# More rows than are scored at once, of which the last part is shorter.
MANY = (1 << 18) + 7


@pytest.mark.parametrize(
    "shape, rows, count",
    [
        *((shape, V, 4) for shape in SHAPES),
        ((3, 2), V, 0),
        ((3, 2), MANY, 3),
        # Two bytes are read as one number.
        ((3, 10), MANY, 1),
    ],
)
def test_scores_and_gradients(shape, rows, count):
    layer, codes, table = random_codes(*shape, rows)
    rng = np.random.default_rng(1)
    vectors = tf.constant(rng.normal(size=(count, D)), "float32")
    upstream = rng.normal(size=(count, rows)).astype("float32")
    codebooks = layer.codebooks.value
    with tf.GradientTape() as tape:
        tape.watch([codebooks, vectors])
        found = layer(vectors, reverse=True)
    gradients = tape.gradient(found, [codebooks, vectors], upstream)
    np.testing.assert_allclose(found, vectors @ table.T, atol=2e-5)
    # Sums of all rows.
    close = {"rtol": 1e-4, "atol": 1e-6 * rows + 1e-4}
    np.testing.assert_allclose(gradients[1], upstream @ table, **close)
    expected = np.zeros(codebooks.shape)
    for m, subcodes in enumerate(codes.T):
        np.add.at(expected[m], subcodes, upstream.T @ vectors.numpy())
    np.testing.assert_allclose(gradients[0], expected, **close)


def reference(logits, k):
    ids = np.argsort(-np.asarray(logits, "float32"), axis=-1, kind="stable")
    return ids[..., :k]


def check_top_k(top_k, layer, queries, k=11):
    logits = layer(queries, reverse=True)
    expected = reference(logits, k)
    scores, ids = top_k(queries, k)
    assert scores.shape == ids.shape == (*queries.shape[:-1], k)
    assert ids.dtype == "int32"
    np.testing.assert_array_equal(ids, expected)
    best = np.take_along_axis(np.asarray(logits), expected, -1)
    np.testing.assert_allclose(scores, best, atol=1e-5)


QUERIES = np.random.default_rng(2).normal(size=(2, 3, 4, D)).astype("float32")


@pytest.mark.parametrize("composition", ["sum", "concat", "lstm"])
def test_top_k(composition):
    layer = kc.CodeEmbedding(V, D, 3, 16, composition)
    layer.build()
    # Few of them, which codes score, and many.
    for queries in (QUERIES[0, 0, 0], QUERIES[0, 0], QUERIES):
        check_top_k(layer.top_k, layer, queries)


@pytest.mark.parametrize(
    "options",
    [
        {"input_signature": [tf.TensorSpec((None,) * 4)]},
        pytest.param({"jit_compile": True}, marks=pytest.mark.apart),
    ],
    ids=["unknown shape", "xla"],
)
def test_top_k_in_a_graph(options):
    layer = kc.CodeEmbedding(V, D, 3, 16)
    layer.build()
    graph = tf.function(lambda queries: layer.top_k(queries, 11), **options)
    for queries in (QUERIES[:1, :1, :2], QUERIES):
        check_top_k(lambda queries, k: graph(queries), layer, queries)


@pytest.mark.parametrize("rows, count", [(4100, 1027), (MANY, 1)])
def test_top_k_of_many(rows, count):
    """More rows, or queries, than are looked at at once."""
    layer, _, _ = random_codes(3, 16, rows, width=2)
    queries = np.random.default_rng(3).normal(size=(count, 2)).astype("float32")
    logits = layer(queries, reverse=True)
    scores, ids = layer.top_k(queries, 5)
    found = np.take_along_axis(np.asarray(logits), np.asarray(ids), -1)
    np.testing.assert_allclose(scores, found, atol=1e-5)
    np.testing.assert_allclose(
        scores, tf.math.top_k(logits, 5).values, atol=1e-5
    )
    assert all(len(set(row)) == 5 for row in ids.numpy())


@pytest.mark.parametrize("rows", [V, MANY])
def test_ties_go_to_lower_ids(rows):
    codes = np.zeros((rows, 2), "int32")
    codes[[7, 30, rows - 2]] = 1
    layer = kc.CodeEmbedding(
        rows, 2, 2, 2, codes=codes, codebooks=[[[0, 0], [1, 0]]] * 2
    )
    scores, ids = layer.top_k([[1.0, 0.0]], 5)
    np.testing.assert_array_equal(ids, [[7, 30, rows - 2, 0, 1]])
    np.testing.assert_array_equal(scores, [[2, 2, 2, 0, 0]])
    assert layer.top_k(np.ones((0, 2), "float32"), V)[1].shape == (0, V)


@pytest.mark.parametrize("worst", [-3e4, np.nan])
def test_scores_that_are_no_numbers(worst):
    codes = np.arange(V)[:, None] % 2
    # In float16, -30,000 times 8 is as low as numbers get.
    layer = kc.CodeEmbedding(
        V, 1, 1, 2, codes=codes, codebooks=[[[1], [8]]], dtype="float16"
    )
    for count in (1, 3):
        scores, ids = layer.top_k(np.full((count, 1), worst, "float16"), V)
        logits = layer(np.full((count, 1), worst, "float16"), reverse=True)
        picked = np.take_along_axis(np.asarray(logits), np.asarray(ids), -1)
        np.testing.assert_array_equal(scores, picked)
        # Each id once.
        np.testing.assert_array_equal(np.sort(ids), [np.arange(V)] * count)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"dtype": "mixed_bfloat16", "reverse": Reverse(logit_soft_cap=2.0)},
        {"dtype": "float16", "reverse": Reverse(tie_weights=False)},
        {"codes": "softmax"},
    ],
)
def test_top_k_is_of_logits(kwargs):
    layer = kc.CodeEmbedding(V, D, 3, 16, **kwargs)
    queries = keras.random.normal((4, D), seed=1, dtype=layer.compute_dtype)
    logits = layer(queries, reverse=True)
    top_ids = TopIds(layer, 7)
    answer = top_ids(queries)
    assert answer["scores"].dtype == logits.dtype
    spec = top_ids(keras.KerasTensor((4, D), layer.compute_dtype))
    assert spec["scores"].dtype == logits.dtype.name
    logits = np.asarray(logits, "float32")
    scores = np.asarray(answer["scores"], "float32")
    np.testing.assert_array_equal(
        scores, np.take_along_axis(logits, np.asarray(answer["ids"]), -1)
    )
    np.testing.assert_array_equal(scores, np.sort(logits)[:, :-8:-1])


def test_what_has_no_best_rows():
    layer = kc.CodeEmbedding(V, D, 3, 16)
    with pytest.raises(AttributeError, match="build"):
        layer.top_k(np.zeros((3, D), "float32"), 4)
    layer.build()
    with refused("k", V + 1):
        layer.top_k(np.zeros((1, D), "float32"), V + 1)
    with refused("queries"):
        layer.top_k(np.zeros((2, D + 1), "float32"), 2)
    with refused("table"):
        TopIds(keras.layers.Dense(3), 2)


def test_ragged_queries():
    layer = kc.CodeEmbedding(V, D, 3, 16)
    layer.build()
    queries = keras.random.normal((3, D), seed=1)
    check_top_k(layer.top_k, layer, queries, 4)
    ragged = tf.RaggedTensor.from_row_lengths(queries, [2, 0, 1])
    found = (*layer.top_k(ragged, 4), layer(ragged, reverse=True))
    wanted = (*layer.top_k(queries, 4), layer(queries, reverse=True))
    for got, flat in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.row_lengths(), [2, 0, 1])
        np.testing.assert_allclose(got.flat_values, flat, atol=1e-6)
    answer = TopIds(layer, 4)(queries)
    np.testing.assert_array_equal(answer["ids"], wanted[1])


def test_devices_read_rows_in_chunks(strategy):
    """Rows of anchors, which devices otherwise exchange."""
    with strategy.scope():
        layer = kc.ANTEmbedding(V, D, 7)
        inputs = keras.Input((D,))
        model = keras.Model(inputs, TopIds(layer, 4)(inputs))
    vectors = np.random.default_rng(3).normal(size=(5, D)).astype("float32")
    answer = model.predict(vectors, batch_size=4, verbose=0)
    logits = np.asarray(layer(vectors, reverse=True))
    np.testing.assert_array_equal(answer["ids"], reference(logits, 4))
