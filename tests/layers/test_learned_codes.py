"""Codes learned while a task is trained."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from errors import warned
from layer_checks import largest_tensor
from small_learners import make_learner

import keras_compembed as kc
from keras_compembed.learners.task_codes import FollowingCodes
from keras_compembed.learners.task_codes import NearestCodes

ROWS, WIDTH, M, K = 40, 7, 4, 8
IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")
MODES = [
    {"codes": None},
    {"codes": "nearest", "composition": "concat"},
    {"codes": "softmax", "composition": "lstm"},
    {"codes": "follow"},
]


def make_layer(codes=None, **kwargs):
    keras.utils.set_random_seed(0)
    return kc.CodeEmbedding(ROWS, WIDTH, M, K, codes=codes, **kwargs)


def softmax(x):
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def reference_scores(queries, keys, mode):
    """Scores of the parts of queries, one by one."""
    parts = np.array_split(queries, M, axis=1)
    keys = np.array_split(keys, M, axis=1)
    scores = np.empty((len(queries), M, K))
    for m in range(M):
        for k in range(K):
            if mode == "nearest":
                score = -np.square(parts[m] - keys[m][k]).sum(axis=1)
            else:
                score = parts[m] @ keys[m][k]
            scores[:, m, k] = score
    return scores


@pytest.mark.parametrize("mode", ["softmax", "nearest"])
def test_training_step_equals_the_reference(mode):
    cls = NearestCodes if mode == "nearest" else kc.learners.SoftmaxCodes
    layer = make_layer(cls(temperature=0.7), mask_zero=True)
    layer.build()
    rng = np.random.default_rng(0)
    assert layer.queries.shape == (ROWS, 4 * M)
    queries, keys = rng.normal(size=(ROWS, 4 * M)), rng.normal(size=(K, 4 * M))
    codebooks = rng.normal(size=(M, K, WIDTH))
    layer.queries.assign(queries)
    layer.keys.assign(keys)
    layer.codebooks.assign(codebooks)
    ids = np.array([5, 0, 7, 5, 9, 11, 0, 7, 5])
    upstream = rng.normal(size=(len(ids), WIDTH))
    with tf.GradientTape() as tape:
        vectors = layer(ids, training=True)
        loss = tf.reduce_sum(vectors * upstream)
    sources = [layer.queries.value, layer.keys.value, layer.codebooks.value]
    gradients = [
        tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, sources)
    ]

    # Each id counts once; padding does not.
    scores = reference_scores(queries, keys, mode)
    counted = scores[np.unique(ids[ids != 0])]
    mean, deviation = counted.mean(axis=0), np.sqrt(counted.var(axis=0) + 1e-9)
    codes = ((scores - mean) / deviation)[ids].argmax(axis=2)
    expected = sum(codebooks[m, codes[:, m]] for m in range(M))
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-4)

    codebook_gradient = np.zeros_like(codebooks)
    for row, code in zip(upstream, codes, strict=True):
        codebook_gradient[np.arange(M), code] += row
    np.testing.assert_allclose(gradients[2], codebook_gradient, atol=1e-4)

    # Through the softmax, as if it had picked, for statistics that are as they
    # are: checked by differences of sum(softmax * pull), in float64.
    pull = np.einsum("nd,mkd->nmk", upstream, codebooks)

    def surrogate(queries, keys):
        scores = reference_scores(queries, keys, mode)
        scores = (scores - mean) / deviation
        return np.sum(softmax(scores[ids] / 0.7) * pull)

    step = 1e-6
    for place, value in ((0, queries), (1, keys)):
        for row, column in ((5, 0), (5, 15), (7, 3), (0, 9)):
            moved = [queries.copy(), keys.copy()]
            row = row % len(value)
            moved[place][row, column] += step
            up = surrogate(*moved)
            moved[place][row, column] -= 2 * step
            slope = (up - surrogate(*moved)) / (2 * step)
            np.testing.assert_allclose(
                gradients[place][row, column], slope, rtol=1e-3, atol=1e-3
            )
    untouched = np.setdiff1d(np.arange(ROWS), ids)
    assert not gradients[0][untouched].any()


def test_nearest_side_by_side_goes_straight_through():
    layer = make_layer(NearestCodes(commitment=0.5), composition="concat")
    layer.build()
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(ROWS, WIDTH)), rng.normal(size=(K, WIDTH))
    layer.queries.assign(queries)
    layer.codebooks.assign(keys)
    ids = np.array([5, 7, 5, 9])
    upstream = rng.normal(size=(4, WIDTH))
    with tf.GradientTape() as tape:
        vectors = layer(ids, training=True)
        loss = tf.reduce_sum(vectors * upstream) + sum(layer.losses)
    sources = [layer.queries.value, layer.codebooks.value]
    for_queries, for_keys = (
        tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, sources)
    )
    scores = reference_scores(queries, keys, "nearest")
    counted = scores[np.unique(ids)]
    scores = (scores[ids] - counted.mean(axis=0)) / counted.std(axis=0)
    codes = scores.argmax(axis=2)
    part_of = np.repeat(np.arange(M), [2, 2, 2, 1])
    chosen = keys[codes[:, part_of], np.arange(WIDTH)]
    np.testing.assert_allclose(vectors, chosen, atol=1e-5)

    apart = queries[ids] - chosen
    np.testing.assert_allclose(
        layer.losses[0], 1.5 * np.mean(apart**2), rtol=1e-4
    )
    commit = 0.5 * 2 * apart / (4 * WIDTH)
    expected = np.zeros_like(queries)
    np.add.at(expected, ids, upstream + commit)
    np.testing.assert_allclose(for_queries, expected, atol=1e-5)
    expected = np.zeros_like(keys)
    columns = np.broadcast_to(np.arange(WIDTH), chosen.shape)
    follow = upstream - 2 * apart / (4 * WIDTH)
    np.add.at(expected, (codes[:, part_of], columns), follow)
    np.testing.assert_allclose(for_keys, expected, atol=1e-5)


def test_a_step_touches_its_own_rows():
    # 3 ids of many: nothing in forward and backward pass has as many rows but
    # what is stored.
    layer = kc.CodeEmbedding(
        20_000, 16, 8, 16, codes="softmax", composition="concat"
    )
    layer.build()

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=True))
        return tape.gradient(loss, layer.queries.value)

    gradient = step(tf.constant([7, 9, 7]))
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_array_equal(np.sort(gradient.indices), [7, 9])
    assert largest_tensor(step, tf.TensorSpec((3,), "int32")) <= 3 * 8 * 32


def test_recode():
    table = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
    learner = make_learner(
        kc.learners.KDCodeLearner,
        num_codebooks=M,
        codebook_size=K,
        composition="linear",
        iterations=2,
        seed=0,
        verbose=0,
    )
    layer = kc.CodeEmbedding.from_table(
        table, M, K, learner=learner, codes="follow"
    )
    np.testing.assert_allclose(layer.latents, table, rtol=1e-6)
    # A row that becomes another's gets a code as good for it.
    layer.latents.assign(table[::-1])
    before = np.square(layer.embeddings - table[::-1]).sum()
    assert 0 < layer.recode() <= ROWS
    after = np.square(layer.embeddings - table[::-1]).sum()
    assert after < 0.5 * before


def test_latents_begin_with_the_vectors():
    rng = np.random.default_rng(0)
    given = rng.integers(K, size=(ROWS, M))
    codebooks = rng.normal(size=(M, K, WIDTH))
    layer = make_layer(FollowingCodes(codes=given), codebooks=codebooks)
    np.testing.assert_array_equal(layer.codes, given)
    np.testing.assert_allclose(layer.codebooks, codebooks, rtol=1e-6)
    for each in (layer, make_layer(codes="follow")):
        np.testing.assert_allclose(each.latents, each.embeddings, atol=1e-6)

    inner = make_layer(codes="follow")
    tf.function(lambda ids: inner(ids))(tf.constant([1, 2]))
    np.testing.assert_allclose(inner.latents, inner.embeddings, atol=1e-6)


def test_a_batch_of_padding():
    layer = make_layer(codes="softmax", mask_zero=True)
    with tf.GradientTape() as tape:
        vectors = layer(np.zeros((2, 3), "int32"), training=True)
    gradients = tape.gradient(vectors, layer.trainable_variables)
    for gradient in [vectors, *gradients]:
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize(
    ("arguments", "name", "received"),
    [
        ({"codes": "kmeans"}, "codes", "kmeans"),
        (
            {"codes": FollowingCodes(teacher=np.ones((3, WIDTH)))},
            *("teacher", (3, 7)),
        ),
        ({"codes": FollowingCodes(codes=np.eye(3, dtype=int))}, "codes", None),
        ({"codes": "follow", "composition": "lstm"}, "composition", None),
    ],
)
def test_bad_arguments(arguments, name, received):
    with refused(name, received):
        kc.CodeEmbedding(ROWS, WIDTH, M, K, **arguments)
    with refused("recode"):
        make_layer().recode()


def test_reset_codebooks_keeps_codes():
    # Without learning; with keys of their own; with codewords as keys; with
    # latent vectors.
    for mode in MODES:
        layer = make_layer(**mode)
        layer(IDS, training=True)
        for weight in layer.trainable_weights:
            if weight.name not in ("queries", "keys", "latents"):
                weight.assign(weight + 1000)
        if mode["codes"] == "follow":
            layer.recode()
        codes, vectors = layer.codes, layer.embeddings
        layer.reset_codebooks()
        for weight in layer.trainable_weights:
            assert np.abs(weight.numpy()).max() < 10
        np.testing.assert_array_equal(layer.codes, codes)
        assert not np.isclose(layer.embeddings, vectors).all(axis=1).any()
        if mode["codes"] == "follow":
            assert layer.recode() == 0
        if mode["codes"] is not None:
            layer = kc.strip(layer)
        np.testing.assert_array_equal(layer.codes, codes)


def test_recode_every_without_its_callback():
    layer = make_layer(FollowingCodes(recode_every=2))
    model = keras.Sequential([layer])
    model.compile("sgd", "mse", run_eagerly=True)
    targets = np.zeros((2, 3, WIDTH))
    with warned("has no effect without"):
        model.fit(IDS, targets, verbose=0)
    model.compile("sgd", "mse", run_eagerly=True)
    callbacks = [kc.compression.RecodeEmbeddings()]
    model.fit(IDS, targets, callbacks=callbacks, verbose=0)
    # A training loop of one's own.
    layer = make_layer(FollowingCodes(recode_every=2))
    layer.recode()
    layer(IDS, training=True)


def test_codes_that_followed_nothing():
    layer = make_layer(codes="follow")
    layer(IDS, training=True)
    with warned("Codes did not change"):
        kc.strip(layer)
