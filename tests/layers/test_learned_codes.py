"""Codes learned while a task is trained."""

import contextlib
import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_frozen
from layer_checks import check_layer
from small_learners import make_learner

import keras_compembed as kc
from keras_compembed.codes.packing import unpack_codes

ROWS, WIDTH, M, K = 40, 7, 4, 8
IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")
MODES = [
    {"learn_codes": "softmax"},
    {"learn_codes": "softmax", "composition": "concat"},
    {"learn_codes": "nearest"},
    {"learn_codes": "nearest", "composition": "concat"},
    {"learn_codes": "softmax", "composition": "lstm"},
    {"learn_codes": "follow"},
    {"learn_codes": "follow", "composition": "concat"},
]


VECTORS = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
TEACHER = functools.partial(kc.learners.SoftmaxCodes, 1.0)
KINDS = {
    "softmax": kc.learners.SoftmaxCodes,
    "nearest": kc.learners.NearestCodes,
    "follow": kc.learners.FollowingCodes,
}


def mode_name(mode):
    return "-".join(mode.values())


def make_layer(seed=0, learn_codes=None, options=None, **kwargs):
    """A layer; `options` are those of `learn_codes`."""
    keras.utils.set_random_seed(seed)
    if options:
        learn_codes = KINDS[learn_codes](**options)
    return kc.CodeEmbedding(
        ROWS, WIDTH, M, K, learn_codes=learn_codes, seed=seed, **kwargs
    )


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
        # That XLA trains the same is tested below.
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


@pytest.mark.parametrize("mode", [MODES[0], MODES[3], MODES[5]], ids=mode_name)
def test_layer_checks(mode, tmp_path):
    trainable = {"softmax": 3, "nearest": 3, "follow": 2}[mode["learn_codes"]]
    if mode == MODES[3]:
        trainable -= 1  # Codewords are the keys.
    check_layer(
        kc.CodeEmbedding,
        {
            "input_dim": 30,
            "output_dim": WIDTH,
            "num_codebooks": M,
            "codebook_size": K,
            "seed": 1,
            **mode,
        },
        IDS,
        expected_output_shape=(2, 3, WIDTH),
        expected_trainable_weights=trainable,
        expected_non_trainable_weights=2 + (mode["learn_codes"] != "follow"),
        tmp_path=tmp_path,
        statistics=("score_sums",),
    )


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
    layer = make_layer(
        learn_codes=mode, options={"temperature": 0.7}, mask_zero=True
    )
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
        learn_codes="nearest",
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


@pytest.mark.parametrize("mode", MODES[:4], ids=mode_name)
def test_codes_are_those_trained_with(mode):
    ids, labels = task(size=400)
    # Most places hold one id, whose query moves the statistics of scores.
    ids = np.pad(ids[:, :3], ((0, 0), (0, 12)))
    model = make_model(length=15, **mode)
    compile_model(model, keras.optimizers.Adam(0.01), metrics=["accuracy"])
    trained = model.fit(ids, labels, batch_size=40, epochs=40, verbose=0)
    accuracy = model.evaluate(ids, labels, verbose=0)[1]
    assert accuracy > trained.history["accuracy"][-1] - 0.05


@pytest.mark.parametrize("mode", MODES[2:5], ids=mode_name)
def test_codes_learn_a_task(mode):
    ids, labels = task(size=400)
    model = compile_model(
        make_model(**mode), keras.optimizers.Adam(0.02), steps_per_execution=10
    )
    before = model.layers[0].codes
    losses = model.fit(
        ids, labels, batch_size=40, epochs=30, verbose=0
    ).history["loss"]
    assert (model.layers[0].codes != before).mean() > 0.1
    accuracy = np.mean(model.predict(ids, verbose=0).argmax(axis=1) == labels)
    assert losses[-1] < 0.5 * losses[0]
    assert accuracy > 0.9


@pytest.mark.parametrize(
    "mode, exported",
    [
        (MODES[1], True),
        (MODES[3], True),
        (MODES[4], False),
        (MODES[5], True),
    ],
    ids=lambda value: mode_name(value) if isinstance(value, dict) else "",
)
def test_freeze_codes(mode, exported, tmp_path):
    ids, labels = task()
    model = compile_model(make_model(**mode))
    layer = model.layers[0]
    model.fit(ids, labels, verbose=0)
    if mode["learn_codes"] == "follow":
        layer.recode()
    traced = tf.function(lambda ids: layer(ids, training=True))
    traced(ids)
    codes, embeddings = layer.codes, layer.embeddings
    vectors = layer(np.arange(ROWS)).numpy()
    predictions = model.predict(ids, verbose=0)
    exports = []

    def export():
        path = tmp_path / f"{len(exports)}.tflite"
        file = kc.export.export_litert(model, path, verbose=0)
        exports.append((file.file_bytes, kc.export.LiteRTModel(path)(ids)))

    if exported:
        export()

    layer.freeze_codes()
    assert layer.learn_codes is None
    names = {weight.path.rpartition("/")[2] for weight in layer.weights}
    own = {weight.name for weight in layer.composition.weights}
    assert names == {"codebooks", "packed_codes"} | own
    np.testing.assert_array_equal(
        unpack_codes(layer.packed_codes.numpy(), M, K), codes
    )
    np.testing.assert_array_equal(layer.embeddings, embeddings)
    np.testing.assert_array_equal(layer(np.arange(ROWS)), vectors)
    np.testing.assert_array_equal(
        layer(np.arange(ROWS), training=True), vectors
    )
    np.testing.assert_array_equal(model.predict(ids, verbose=0), predictions)
    if exported:
        export()
        (learning, outputs), (frozen, same) = exports
        assert learning == frozen
        np.testing.assert_array_equal(outputs, same)

    # A function of one's own that was traced before still has the queries.
    with pytest.raises(tf.errors.InvalidArgumentError, match="Make it anew"):
        traced(ids)
    model.fit(ids, labels, verbose=0)
    np.testing.assert_array_equal(layer.codes, codes)
    assert not np.array_equal(layer.embeddings, embeddings)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again.predict(ids, verbose=0), model.predict(ids, verbose=0)
    )
    with pytest.raises(ValueError, match="`freeze_codes` must be called once"):
        layer.freeze_codes()


def test_training_goes_on_after_loading(tmp_path):
    ids, labels = task()
    model = compile_model(make_model(learn_codes="softmax"))
    model.fit(ids, labels, verbose=0, shuffle=False)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for one in (model, again):
        one.fit(ids, labels, verbose=0, shuffle=False)
    for weight, same in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), same.numpy())


@pytest.mark.parametrize("mode", [MODES[0], MODES[5]], ids=mode_name)
def test_checkpoints_of_tensorflow(mode, tmp_path):
    layer, other = make_layer(**mode), make_layer(seed=1, **mode)
    for one in (layer, other):
        one.build()
    path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "weights"))
    tf.train.Checkpoint(layer=other).read(path).assert_consumed()
    for weight, same in zip(layer.weights, other.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), same.numpy())


def test_teacher_draws_vectors():
    mode = MODES[3]
    # Rows that codes can tell: each is one of three.
    rng = np.random.default_rng(0)
    table = rng.normal(size=(3, WIDTH))[np.arange(ROWS) % 3]
    ids = np.tile(np.arange(ROWS), 20)[:, None]
    apart = []
    for teacher in (None, table):
        options = {"teacher": teacher, "teacher_weight": 3.0}
        layer = make_layer(options=options, **mode)
        model = keras.Sequential([keras.Input((1,), dtype="int32"), layer])
        model.compile(
            keras.optimizers.Adam(0.02),
            lambda y_true, y_pred: 0.0 * keras.ops.mean(y_pred, axis=(1, 2)),
            jit_compile=False,
            steps_per_execution=20,
        )
        model.fit(ids, ids, batch_size=40, epochs=8, verbose=0)
        apart.append(np.mean((layer.embeddings - table) ** 2))
    assert apart[1] < 0.2 * apart[0]

    layer(np.array([4, 4, 5]), training=True)
    vectors = layer(np.array([4, 4, 5]), training=True)
    expected = 3 * np.mean((vectors - table[[4, 4, 5]]) ** 2)
    np.testing.assert_allclose(layer.losses[-1], expected, rtol=1e-4)
    np.testing.assert_allclose(layer.learn_codes.teacher, table, rtol=1e-6)
    layer.freeze_codes()
    assert layer.learn_codes is None


def test_a_step_touches_its_own_rows():
    # 3 ids of a million: nothing in forward and backward pass has a million
    # rows but what is stored.
    layer = kc.CodeEmbedding(
        1_000_000, 16, 8, 16, learn_codes="softmax", composition="concat"
    )
    layer.build()

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=True))
        return tape.gradient(loss, layer.queries.value)

    function = step.get_concrete_function(tf.TensorSpec((3,), "int32"))
    gradient = function(tf.constant([7, 9, 7]))
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_array_equal(np.sort(gradient.indices), [7, 9])
    sizes = {
        tensor.shape.num_elements() or 0
        for op in function.graph.get_operations()
        for tensor in op.outputs
        if tensor.dtype != tf.resource and op.type != "ReadVariableOp"
    }
    assert max(sizes) <= 3 * 8 * 32


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
            table, M, K, learner=learner, learn_codes="follow"
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
    given = {
        "codes": rng.integers(K, size=(ROWS, M)),
        "codebooks": rng.normal(size=(M, K, WIDTH)),
    }
    for arguments in ({}, given):
        layer = make_layer(learn_codes="follow", **arguments)
        layer.build()
        np.testing.assert_allclose(layer.latents, layer.embeddings, atol=1e-6)

    @tf.function
    def build_in_a_graph(ids):
        return inner(ids)

    inner = make_layer(learn_codes="follow")
    build_in_a_graph(tf.constant([1, 2]))
    np.testing.assert_allclose(inner.latents, inner.embeddings, atol=1e-6)


def test_latents_get_the_gradients_of_vectors():
    layer = make_layer(learn_codes="follow")
    ids = np.array([4, 9, 4])
    upstream = np.random.default_rng(0).normal(size=(3, WIDTH))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids, training=True) * upstream)
    gradient = tape.gradient(loss, layer.latents.value)
    expected = np.zeros((ROWS, WIDTH))
    np.add.at(expected, ids, upstream)
    np.testing.assert_allclose(
        tf.convert_to_tensor(gradient), expected, atol=1e-6
    )


@pytest.mark.parametrize("mode", [MODES[0], MODES[3]], ids=mode_name)
def test_xla_trains_the_same(mode):
    ids, labels = task()
    weights = []
    for jit_compile in (False, True):
        model = make_model(mask_zero=True, **mode)
        model.compile(
            keras.optimizers.SGD(0.5),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=jit_compile,
        )
        model.fit(ids, labels, batch_size=16, shuffle=False, verbose=0)
        weights.append([w.numpy() for w in model.trainable_weights])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def fit_model(scope, optimizer, **kwargs):
    with scope:
        model = compile_model(
            make_model(**kwargs), keras.optimizers.get(optimizer)
        )
    ids, labels = task()
    history = model.fit(
        ids, labels, batch_size=16, epochs=2, shuffle=False, verbose=0
    )
    return model, history.history["loss"]


@pytest.mark.parametrize(
    "mode",
    [
        {**MODES[0], "mask_zero": True},
        {**MODES[3], "options": {"teacher": VECTORS}},
        MODES[5],
    ],
    ids=lambda mode: mode["learn_codes"],
)
def test_two_devices_learn_what_one_learns(strategy, mode):
    # Not linear in the gradient, as SGD is, nor blind to its size, as Adam
    # with its default epsilon is.
    optimizer = {
        "class_name": "Adam",
        "config": {"learning_rate": 0.05, "epsilon": 0.1},
    }
    one, one_loss = fit_model(contextlib.nullcontext(), optimizer, **mode)
    two, two_loss = fit_model(strategy.scope(), optimizer, **mode)
    np.testing.assert_allclose(one_loss, two_loss, rtol=1e-4)
    for weight, same in zip(one.weights, two.weights, strict=True):
        # Sums in another order.
        np.testing.assert_allclose(
            weight.numpy(), same.numpy(), atol=1e-4, err_msg=weight.path
        )
    layer = two.layers[0]
    np.testing.assert_array_equal(one.layers[0].codes, layer.codes)
    if mode["learn_codes"] == "follow":
        layer.recode()
    vectors = layer(np.arange(ROWS)).numpy()
    layer.freeze_codes()
    np.testing.assert_array_equal(layer(np.arange(ROWS)), vectors)


def test_a_batch_of_padding():
    layer = make_layer(learn_codes="softmax", mask_zero=True)
    with tf.GradientTape() as tape:
        vectors = layer(np.zeros((2, 3), "int32"), training=True)
    gradients = tape.gradient(vectors, layer.trainable_variables)
    for gradient in [vectors, *gradients]:
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"learn_codes": "kmeans"}, "`learn_codes` must be None, 'softmax',"),
        ({"learn_codes": kc.learners.SoftmaxCodes}, "or an instance such as"),
        ({"learn_codes": TEACHER(np.ones((3, WIDTH)))}, "`teacher` must have"),
        ({"learn_codes": TEACHER(np.ones((ROWS, 2)))}, r"Received.*\(40, 2\)"),
        (
            {"learn_codes": "nearest", "codes": np.zeros((ROWS, M), int)},
            "`codes` must not be given with `learn_codes`",
        ),
        (
            {"learn_codes": "follow", "composition": "lstm"},
            "`composition` must be linear in the codewords",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        kc.CodeEmbedding(ROWS, WIDTH, M, K, **arguments)


def test_bad_calls():
    layer = make_layer()
    with pytest.raises(ValueError, match="`recode` must be called on a layer"):
        layer.recode()
    with pytest.raises(ValueError, match="whose codes are fixed"):
        layer.freeze_codes()
    with pytest.raises(AttributeError, match="You must build the layer"):
        layer.reset_codebooks()
    with pytest.raises(AttributeError, match="You must build the layer"):
        make_layer(learn_codes="softmax").freeze_codes()
    with pytest.raises(ValueError, match="`learn_codes` must be None or 'fol"):
        kc.CodeEmbedding.from_table(
            np.ones((4, 4)), 2, 4, learn_codes="softmax"
        )
    with pytest.raises(ValueError, match="`composition` must be that of the"):
        kc.CodeEmbedding.from_table(
            np.ones((4, 4)),
            2,
            4,
            composition="lstm",
            learner=kc.learners.AdditiveQuantizer(2, 4, verbose=0),
        )


def fit_eagerly(model):
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    model.fit(*task(), verbose=0)


@pytest.mark.parametrize("mode", [MODES[0], *MODES[3:6]], ids=mode_name)
def test_a_frozen_layer_keeps_everything(mode):
    model = make_model(options={"teacher": np.ones((ROWS, WIDTH))}, **mode)
    fit_eagerly(model)
    layer = model.layers[0]
    layer.trainable = False
    check_frozen(layer, lambda: fit_eagerly(model))
    assert not layer.losses
    layer.trainable = True
    queries = [weight.numpy() for weight in layer.trainable_weights]
    fit_eagerly(model)
    for weight, old in zip(layer.trainable_weights, queries, strict=True):
        assert not np.array_equal(weight.numpy(), old)


@pytest.mark.parametrize("compile_first", [True, False])
def test_a_frozen_model_keeps_everything(compile_first):
    model = make_model(learn_codes="softmax")
    head = keras.Sequential([model, keras.layers.Dense(3)])
    if compile_first:
        compile_model(head)
    model.trainable = False
    if not compile_first:
        compile_model(head)
    check_frozen(model.layers[0], lambda: head.fit(*task(), verbose=0))


def test_reset_codebooks_keeps_codes():
    # Without learning; with keys of their own; with codewords as keys; with
    # latent vectors.
    for mode in ({"learn_codes": None}, MODES[4], MODES[3], MODES[5]):
        layer = make_layer(**mode)
        layer(IDS, training=True)
        for weight in layer.trainable_weights:
            if weight.name not in ("queries", "keys", "latents"):
                weight.assign(weight + 1000)
        if mode["learn_codes"] == "follow":
            layer.recode()
        codes, vectors = layer.codes, layer.embeddings
        layer.reset_codebooks()
        for weight in layer.trainable_weights:
            assert np.abs(weight.numpy()).max() < 10
        np.testing.assert_array_equal(layer.codes, codes)
        assert not np.isclose(layer.embeddings, vectors).all(axis=1).any()
        if mode["learn_codes"] == "follow":
            assert layer.recode() == 0
        if mode["learn_codes"] is not None:
            layer.freeze_codes()
        np.testing.assert_array_equal(layer.codes, codes)


def test_recode_every_without_its_callback():
    mode = {"learn_codes": "follow", "options": {"recode_every": 2}}
    model = compile_model(make_model(**mode))
    # Not `pytest.warns`, which passes on what old versions of Keras warn of.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(*task(), verbose=0)
    said = [str(one.message) for one in caught]
    assert any("for the callback `RecodeEmbeddings`" in one for one in said)
    compile_model(model)
    model.fit(*task(), callbacks=[kc.compression.RecodeEmbeddings()], verbose=0)
    # A training loop of one's own.
    layer = make_layer(**mode)
    layer.recode()
    layer(IDS, training=True)


@pytest.mark.parametrize("layer", [kc.CodeEmbedding, kc.CodeEmbedReduce])
@pytest.mark.parametrize("recodes", [False, True])
def test_codes_that_followed_nothing(layer, recodes):
    layer = layer(ROWS, WIDTH, M, K, learn_codes="follow")
    layer(IDS, training=True)
    if recodes:
        layer.recode()
    # Not `pytest.warns`, as above.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        layer.freeze_codes()
    said = [str(one.message) for one in caught]
    assert any("Codes followed nothing" in one for one in said) != recodes
