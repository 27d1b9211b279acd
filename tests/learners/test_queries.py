"""Queries and keys, without a layer."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.coded_rows import CodedRows
from keras_compembed.codes.packing import pack_codes
from keras_compembed.compositions.registry import get_composition
from keras_compembed.learners.queries import Queries
from keras_compembed.learners.queries import kept_sums
from keras_compembed.learners.queries import normalize_scores
from keras_compembed.learners.queries import pick_best
from keras_compembed.learners.queries import score_sums

ROWS, WIDTH, M, K = 9, 7, 4, 8


def make_queries(nearest):
    """Queries for the rows of a table, and the names of their weights."""
    names = []

    def add_weight(name, shape, initializer="zeros", **kwargs):
        names.append(name)
        return keras.Variable(initializer, shape, name=name, **kwargs)

    codebooks = keras.Variable(np.zeros((M, K, WIDTH)), dtype="float16")
    packed = pack_codes(np.zeros((ROWS, M), "uint8"), K)
    table = CodedRows(
        keras.Variable(packed, dtype="uint8", trainable=False),
        codebooks,
        get_composition("sum", M, K, WIDTH),
    )
    return Queries(add_weight, table, nearest), names


def test_best_key_of_each_part():
    rng = np.random.default_rng(0)
    for nearest in (False, True):
        queries, names = make_queries(nearest)
        assert names == ["queries", "keys", "score_sums"]
        # Parts are 4 wide at least, and sums are exact in half precision.
        assert queries.queries.shape == (ROWS, 4 * M)
        assert queries.score_sums.dtype == "float32"
        asked, keys = rng.normal(size=(ROWS, 16)), rng.normal(size=(K, 16))
        queries.queries.assign(asked)
        queries.keys.assign(keys)
        parts = (
            asked.reshape(ROWS, M, 1, 4),
            keys.reshape(K, M, 4).swapaxes(0, 1),
        )
        if nearest:
            scores = -np.square(parts[0] - parts[1]).sum(axis=3)
        else:
            scores = (parts[0] * parts[1]).sum(axis=3)
        # Before statistics are known, scores are as they are.
        np.testing.assert_array_equal(
            queries.subcodes(np.arange(ROWS)), scores.argmax(axis=2)
        )
        rows, got = queries.ask(np.arange(ROWS), tf.ones(ROWS))
        np.testing.assert_allclose(rows, asked, rtol=1e-6)
        scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
        np.testing.assert_allclose(got, scores, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(
            queries.subcodes(np.arange(ROWS)), scores.argmax(axis=2)
        )
        queries.restart(np.zeros((ROWS, 16)))
        assert not np.any(queries.queries) and not np.any(queries.score_sums)


def test_pick_best():
    scores = tf.constant([[[1.0, 3.0, 2.0]]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        picks = pick_best(scores, 0.5)
        loss = picks[0, 0, 0]
    np.testing.assert_array_equal(picks, [[[0, 1, 0]]])
    soft = np.exp(np.array([2.0, 6.0, 4.0]))
    soft /= soft.sum()
    expected = (np.array([soft[0], 0, 0]) - soft[0] * soft) / 0.5
    gradient = tape.gradient(loss, scores)
    np.testing.assert_allclose(gradient[0, 0], expected, rtol=1e-5)


def test_statistics_of_batches():
    rng = np.random.default_rng(0)
    kept = np.zeros((3, M, K), "float32")
    batches = [rng.normal(2, 3, size=(n, M, K)) for n in (30, 50)]
    for batch in batches:
        sums = score_sums(tf.constant(batch, "float32"), tf.ones(len(batch)))
        kept = kept_sums(kept, sums)
    weights = np.concatenate([np.full(30, 0.9), np.ones(50)])
    both = np.concatenate(batches)
    mean = np.average(both, axis=0, weights=weights)
    variance = np.average((both - mean) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(
        normalize_scores(tf.constant(both, "float32"), kept),
        (both - mean) / np.sqrt(variance),
        rtol=1e-3,
        atol=1e-3,
    )
