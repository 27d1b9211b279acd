"""Codes learned while a task is trained."""

import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_checks import largest_tensor
from small_learners import make_learner

import keras_compembed as kc
from keras_compembed.learners.task_codes import FollowingCodes
from keras_compembed.learners.task_codes import NearestCodes

ROWS, WIDTH, M, K = 40, 7, 4, 8
IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")
MODES = [
    {"codes": "softmax"},
    {"codes": "nearest", "composition": "concat"},
    {"codes": "softmax", "composition": "lstm"},
    {"codes": "follow"},
]
TEACHER = functools.partial(kc.learners.SoftmaxCodes, 1.0)
KINDS = {
    "softmax": kc.learners.SoftmaxCodes,
    "nearest": NearestCodes,
    "follow": FollowingCodes,
}


def mode_name(mode):
    return "-".join(mode.values())


def make_layer(codes=None, options=None, **kwargs):
    """A layer; `options` are those of how codes are learned."""
    keras.utils.set_random_seed(0)
    if options:
        codes = KINDS[codes](**options)
    return kc.CodeEmbedding(ROWS, WIDTH, M, K, codes=codes, **kwargs)


def make_model(length=6, **kwargs):
    layer = make_layer(**kwargs)
    return keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                3, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )


def compile_model(model, optimizer=None, **kwargs):
    model.compile(
        optimizer or keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
        **kwargs,
    )
    return model


def task(size=48):
    """Texts whose class is that of most of their ids."""
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=size)
    own = labels[:, None] + 3 * rng.integers(13, size=(size, 6))
    ids = np.where(rng.random((size, 6)) < 0.7, own, rng.integers(39))
    return ids.astype("int32"), labels


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
    layer = make_layer(codes=mode, options={"temperature": 0.7}, mask_zero=True)
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
    layer = make_layer(
        codes="nearest",
        options={"commitment": 0.5},
        composition="concat",
    )
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


@pytest.mark.parametrize(
    "mode",
    [pytest.param(MODES[0], marks=pytest.mark.slow), MODES[1]],
    ids=mode_name,
)
def test_codes_are_those_trained_with(mode):
    ids, labels = task(size=400)
    # Most places hold one id, whose query moves the statistics of scores.
    ids = np.pad(ids[:, :3], ((0, 0), (0, 12)))
    model = make_model(length=15, **mode)
    compile_model(
        model,
        keras.optimizers.Adam(0.02),
        metrics=["accuracy"],
        steps_per_execution=10,
    )
    before = model.layers[0].codes
    history = model.fit(ids, labels, batch_size=40, epochs=25, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    assert (model.layers[0].codes != before).mean() > 0.1
    accuracy = model.evaluate(ids, labels, verbose=0)[1]
    assert accuracy > history.history["accuracy"][-1] - 0.05
    assert accuracy > 0.9


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
    rng = np.random.default_rng(0)
    table = rng.normal(size=(ROWS, WIDTH)).astype("float32")
    for composition in ("sum", "concat", "linear"):
        learner = make_learner(
            kc.learners.KDCodeLearner,
            num_codebooks=M,
            codebook_size=K,
            composition=composition,
            iterations=2,
            seed=0,
            verbose=0,
        )
        layer = kc.CodeEmbedding.from_table(
            table, M, K, learner=learner, codes="follow"
        )
        np.testing.assert_array_equal(layer.latents, table)
        vectors = layer(np.arange(ROWS)).numpy()
        np.testing.assert_array_equal(
            layer(np.arange(ROWS), training=True), vectors
        )
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

    @tf.function
    def build_in_a_graph(ids):
        return inner(ids)

    inner = make_layer(codes="follow")
    build_in_a_graph(tf.constant([1, 2]))
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
        ({"codes": kc.learners.SoftmaxCodes}, "codes", None),
        ({"codes": TEACHER(np.ones((3, WIDTH)))}, "teacher", (3, 7)),
        ({"codes": TEACHER(np.ones((ROWS, 2)))}, "teacher", (40, 2)),
        ({"codes": FollowingCodes(codes=np.eye(3, dtype=int))}, "codes", None),
        ({"codes": "follow", "composition": "lstm"}, "composition", None),
    ],
)
def test_bad_arguments(arguments, name, received):
    with refused(name, received):
        kc.CodeEmbedding(ROWS, WIDTH, M, K, **arguments)


def test_bad_calls():
    with refused("recode"):
        make_layer().recode()
    with pytest.raises(AttributeError, match="must build the layer"):
        make_layer().reset_codebooks()
    with refused("codes"):
        kc.CodeEmbedding.from_table(np.eye(4), 2, 4, codes="softmax")


def test_reset_codebooks_keeps_codes():
    # Without learning; with keys of their own; with codewords as keys; with
    # latent vectors.
    for mode in ({"codes": None}, *MODES[1:]):
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
    mode = {"codes": "follow", "options": {"recode_every": 2}}
    model = compile_model(make_model(**mode), run_eagerly=True)
    # Not `pytest.warns`, which passes on what old versions of Keras warn of.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(*task(), verbose=0)
    said = [str(one.message) for one in caught]
    assert any("for the callback `RecodeEmbeddings`" in one for one in said)
    compile_model(model, run_eagerly=True)
    model.fit(*task(), callbacks=[kc.compression.RecodeEmbeddings()], verbose=0)
    # A training loop of one's own.
    layer = make_layer(**mode)
    layer.recode()
    layer(IDS, training=True)


@pytest.mark.parametrize("combiner", [None, "mean"])
@pytest.mark.parametrize("recodes", [False, True])
def test_codes_that_followed_nothing(combiner, recodes):
    layer = make_layer(codes="follow", combiner=combiner)
    layer(IDS, training=True)
    if recodes:
        layer.recode()
    # Not `pytest.warns`, as above.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        kc.strip(layer)
    said = [str(one.message) for one in caught]
    assert any("Codes followed nothing" in one for one in said) != recodes
