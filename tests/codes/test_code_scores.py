"""Scores and best rows from codes, against products with rows in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.codes import code_scores
from keras_compembed.codes.code_scores import CodeScores
from keras_compembed.codes.codeword_sums import decode_codes
from keras_compembed.codes.packing import pack_codes
from keras_compembed.utils import top_rows

V, D = 53, 6
# Bits that share bytes, fill them, cross them, and take two.
SHAPES = [(3, 2), (5, 4), (3, 10), (4, 16), (5, 7), (3, 256), (2, 300)]


def make_parts(num_codebooks, codebook_size, rows=V):
    rng = np.random.default_rng(0)
    codes = rng.integers(codebook_size, size=(rows, num_codebooks))
    codebooks = rng.normal(size=(num_codebooks, codebook_size, D))
    return codes, codebooks.astype("float32")


@pytest.mark.parametrize("part", ["whole", "parts", "words"])
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_and_gradients(shape, part, monkeypatch):
    if part != "whole":
        monkeypatch.setattr(code_scores, "_NUMBERS", 300)
    if part == "words":
        monkeypatch.setattr(code_scores, "_WORD_ROWS", 1)
    count = 1 if part == "words" else 4
    codes, codebooks = make_parts(*shape)
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(count, D)).astype("float32")
    upstream = rng.normal(size=(count, V)).astype("float32")
    scores = CodeScores(tf.constant(pack_codes(codes, shape[1])), *shape)

    @tf.function(reduce_retracing=True)
    def run(codebooks, vectors):
        with tf.GradientTape() as tape:
            tape.watch([codebooks, vectors])
            found = scores.score(scores.tables(codebooks, vectors))
        return found, *tape.gradient(found, [codebooks, vectors], upstream)

    found, of_codebooks, of_vectors = run(codebooks, vectors)
    table = decode_codes(codes, codebooks)
    np.testing.assert_allclose(found, vectors @ table.T, atol=1e-5)
    np.testing.assert_allclose(of_vectors, upstream @ table, atol=1e-4)
    expected = np.zeros_like(codebooks)
    for row, code in enumerate(codes):
        for m, subcode in enumerate(code):
            expected[m, subcode] += upstream[:, row] @ vectors
    np.testing.assert_allclose(of_codebooks, expected, atol=1e-4)


def reference(logits, k):
    ids = np.argsort(-np.asarray(logits, "float32"), axis=-1, kind="stable")
    return ids[..., :k]


@pytest.mark.parametrize("composition", ["sum", "concat", "linear", "lstm"])
@pytest.mark.parametrize("rows", [1 << 18, 8])
def test_top_k(composition, rows, monkeypatch):
    monkeypatch.setattr(top_rows, "_ROWS", (rows, rows))
    monkeypatch.setattr(top_rows, "_VECTORS", 5)
    layer = kc.CodeEmbedding(V, D, 3, 16, composition, seed=1)
    layer.build()
    queries = np.random.default_rng(2).normal(size=(2, 3, 4, D))
    queries = queries.astype("float32")
    graph = tf.function(
        lambda queries: layer.top_k(queries, 11),
        input_signature=[tf.TensorSpec((None, None, None, None))],
    )
    compiled = tf.function(
        lambda queries: layer.top_k(queries, 11), jit_compile=True
    )
    # Few of them, which codes score, and many.
    for part in (queries[0, 0, 0], queries[0, 0], queries):
        logits = layer(part, reverse=True)
        expected = reference(logits, 11)
        best = np.take_along_axis(np.asarray(logits), expected, -1)
        functions = [lambda part: layer.top_k(part, 11), compiled]
        if part.ndim == 4:
            functions.append(graph)
        for function in functions:
            scores, ids = function(part)
            assert scores.shape == ids.shape == (*part.shape[:-1], 11)
            assert ids.dtype == "int32"
            np.testing.assert_array_equal(ids, expected)
            np.testing.assert_allclose(scores, best, atol=1e-5)


@pytest.mark.parametrize("rows", [1 << 18, 8])
def test_ties_go_to_lower_ids(rows, monkeypatch):
    monkeypatch.setattr(top_rows, "_ROWS", (rows, rows))
    codes = np.zeros((V, 2), "int32")
    codes[[7, 30, 31]] = 1
    layer = kc.CodeEmbedding(
        V, 2, 2, 2, codes=codes, codebooks=[[[0, 0], [1, 0]]] * 2
    )
    scores, ids = layer.top_k([[1.0, 0.0]], 5)
    np.testing.assert_array_equal(ids, [[7, 30, 31, 0, 1]])
    np.testing.assert_array_equal(scores, [[2, 2, 2, 0, 0]])
    assert layer.top_k(np.ones((0, 2), "float32"), V)[1].shape == (0, V)


@pytest.mark.parametrize("rows", [1 << 18, 8])
@pytest.mark.parametrize("worst", [-3e4, np.nan])
def test_scores_that_are_no_numbers(worst, rows, monkeypatch):
    monkeypatch.setattr(top_rows, "_ROWS", (rows, rows))
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
        {"dtype": "mixed_bfloat16", "logit_soft_cap": 2.0},
        {"dtype": "float16", "tie_weights": False},
        {"reverse_dtype": "bfloat16"},
        {"learn_codes": "softmax"},
    ],
)
def test_top_k_is_of_logits(kwargs):
    layer = kc.ReversibleCodeEmbedding(V, D, 3, 16, seed=0, **kwargs)
    queries = keras.random.normal((4, D), seed=1, dtype=layer.compute_dtype)
    logits = layer(queries, reverse=True)
    top_ids = kc.TopIds(layer, 7)
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


@pytest.mark.parametrize("k", [0, V + 1, 2.0, True])
def test_k_out_of_range(k):
    layer = kc.CodeEmbedding(V, D, 3, 16)
    layer.build()
    with pytest.raises(ValueError, match=f"`k` must be .* from 1 to {V}"):
        layer.top_k(np.zeros((1, D), "float32"), k)


@pytest.mark.parametrize(
    "queries", [np.zeros((2, D + 1), "float32"), np.zeros((2, D), "int32")]
)
def test_queries_that_are_no_vectors(queries):
    layer = kc.CodeEmbedding(V, D, 3, 16)
    layer.build()
    with pytest.raises(ValueError, match="`queries` must be float vectors"):
        layer.top_k(queries, 2)


def test_top_ids_of_what_is_no_table():
    with pytest.raises(ValueError, match="`table` must be a layer that turns"):
        kc.TopIds(keras.layers.Dense(3), 2)
    with pytest.raises(ValueError, match=f"`k` must be .* from 1 to {V}"):
        kc.TopIds(kc.CodeEmbedding(V, D, 3, 16), V + 1)


def test_ragged_queries():
    layer = kc.CodeEmbedding(V, D, 3, 16, seed=0)
    with pytest.raises(AttributeError, match="build the layer .* `top_k`"):
        layer.top_k(np.zeros((3, D), "float32"), 4)
    layer.build()
    queries = keras.random.normal((3, D), seed=1)
    scores, ids = layer.top_k(queries, 4)
    ragged = tf.RaggedTensor.from_row_lengths(queries, [2, 0, 1])
    for got, wanted in zip(layer.top_k(ragged, 4), (scores, ids), strict=True):
        np.testing.assert_array_equal(got.row_lengths(), [2, 0, 1])
        np.testing.assert_array_equal(got.flat_values, wanted)


def test_anchors():
    layer = kc.ANTEmbedding(V, D, 7, seed=0)
    queries = keras.random.normal((3, 2, D), seed=1)
    logits = np.asarray(layer(queries, reverse=True))
    scores, ids = layer.top_k(queries, 4)
    np.testing.assert_array_equal(ids, reference(logits, 4))
    np.testing.assert_allclose(
        scores, np.take_along_axis(logits, np.asarray(ids), -1), atol=1e-6
    )
    answer = kc.TopIds(layer, 4)(queries)
    np.testing.assert_array_equal(answer["ids"], ids)
    ragged = tf.RaggedTensor.from_row_lengths(queries[:, 0], [2, 0, 1])
    got = layer(ragged, reverse=True)
    np.testing.assert_array_equal(got.row_lengths(), [2, 0, 1])
    np.testing.assert_allclose(got.flat_values, logits[:, 0], atol=1e-6)


def test_devices_agree(strategy):
    """Each of two devices scores from codes, and trains the codebooks."""
    with strategy.scope():
        layer = kc.CodeEmbedding(V, D, 3, 16, seed=0)
        inputs = keras.Input((D,))
        model = keras.Model(inputs, layer(inputs, reverse=True))
        model.compile(keras.optimizers.SGD(0.1), "mse")
    vectors = np.random.default_rng(3).normal(size=(4, D)).astype("float32")
    targets = np.random.default_rng(4).normal(size=(4, V))
    before = layer.codebooks.numpy()
    with tf.GradientTape() as tape:
        codebooks = tf.constant(before)
        tape.watch(codebooks)
        table = layer.composition.compose_codes(
            codebooks, tf.constant(layer.codes, "int32")
        )
        logits = tf.matmul(vectors, table, transpose_b=True)
        loss = tf.reduce_mean((logits - targets) ** 2)
    model.fit(vectors, targets, batch_size=4, verbose=0)
    step = -0.1 * tape.gradient(loss, codebooks)
    np.testing.assert_allclose(layer.codebooks - before, step, atol=1e-5)
    logits = model.predict(vectors, verbose=0)
    with strategy.scope():
        predictor = kc.top_k_model(model, 3)
        answer = predictor.predict(vectors, batch_size=4, verbose=0)
    np.testing.assert_array_equal(answer["ids"], reference(logits, 3))


def test_devices_read_rows_in_chunks(strategy):
    """Rows of anchors, which devices otherwise exchange."""
    with strategy.scope():
        layer = kc.ANTEmbedding(V, D, 7, seed=0)
        inputs = keras.Input((D,))
        model = keras.Model(inputs, kc.TopIds(layer, 4)(inputs))
    vectors = np.random.default_rng(3).normal(size=(5, D)).astype("float32")
    answer = model.predict(vectors, batch_size=4, verbose=0)
    logits = np.asarray(layer(vectors, reverse=True))
    np.testing.assert_array_equal(answer["ids"], reference(logits, 4))
