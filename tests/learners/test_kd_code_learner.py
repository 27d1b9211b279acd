import keras
import numpy as np
import pytest
import tensorflow as tf
from small_learners import clustered_table as make_table
from small_learners import make_learner

import keras_compembed as kc
from keras_compembed.learners import KDCodeLearner
from keras_compembed.learners import TemperatureSchedule
from keras_compembed.learners.training import drawn_places

COMPOSITIONS = ("sum", "concat", "linear", "lstm")


@keras.saving.register_keras_serializable(package="tests")
class MeanComposition(kc.compositions.Composition):
    def call(self, codewords):
        return keras.ops.mean(codewords, axis=1)


def clustered_table(*shape):
    return make_table(*shape, mean=2)


def small_learner(eager=True, **kwargs):
    kwargs = {
        "num_codebooks": 4,
        "codebook_size": 6,
        "composition": "sum",
        "learning_rate": 1e-2,
        "batch_size": 32,
        "iterations": 6,
        "validation_interval": 3,
        "validation_rows": 32,
        "refine": False,
        "seed": 0,
        "verbose": 0,
    } | kwargs
    return make_learner(KDCodeLearner, eager, **kwargs)


def loss_of(learner, table, codes=None, weights=None):
    codes = learner.encode(table) if codes is None else codes
    squares = np.square(learner.decode(codes) - table).sum(axis=1)
    return np.average(squares, weights=weights)


def softmax(x):
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("estimator", ["straight_through", "soft"])
@pytest.mark.parametrize("logits", ["encoder", "free"])
def test_algorithm_1_forward_and_backward(temperature, estimator, logits):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(7, 5))
    places = np.array([3, 0, 9, 5, 5, 1, 7])  # one of them twice
    learner = KDCodeLearner(
        3,
        4,
        composition="sum",
        logits=logits,
        estimator=estimator,
        temperature=temperature,
        refine=False,
    )
    learner.build((10, 5))
    kernel = rng.normal(size=learner.kernel.shape)
    codebooks = rng.normal(size=(3, 4, 5))
    learner.kernel.assign(kernel)
    learner.codewords.assign(codebooks / 0.5)
    learner.scale.assign(0.5)
    inputs = places
    if logits == "encoder":
        bias, offset = rng.normal(size=12), rng.normal(size=5)
        learner.bias.assign(bias)
        learner.offset.assign(offset)
        inputs, normal = rows, (rows - offset) / 0.5

    with tf.GradientTape() as tape:
        loss = learner.compute_loss(
            inputs, rows, learner(inputs, training=True)
        )
    # Scores of size about 3, squared distances of about 50.
    close = {"rtol": 1e-4, "atol": 1e-4}
    weights = [learner.kernel, learner.codewords]
    gradients = [
        tf.convert_to_tensor(gradient).numpy()
        for gradient in tape.gradient(loss, [w.value for w in weights])
    ]

    scores = normal @ kernel + bias if logits == "encoder" else kernel[places]
    scores = scores.reshape(7, 3, 4)
    soft = softmax(scores / temperature)
    hard = np.eye(4)[scores.argmax(axis=-1)]
    forward = soft if estimator == "soft" else hard
    rebuilt = np.einsum("nmk,mkd->nd", forward, codebooks)
    np.testing.assert_allclose(
        loss, np.square(rows - rebuilt).sum(axis=1).mean(), **close
    )
    # In units of the scale.
    upstream = 2 * (rebuilt - rows) / 7 / 0.5**2
    np.testing.assert_allclose(
        gradients[1],
        0.5 * np.einsum("nmk,nd->mkd", forward, upstream),
        **close,
    )
    pull = np.einsum("nd,mkd->nmk", upstream, codebooks)
    pull -= (soft * pull).sum(axis=-1, keepdims=True)
    pull = (soft * pull / temperature).reshape(7, 12)
    if logits == "encoder":
        expected = normal.T @ pull
    else:
        expected = np.zeros((10, 12))
        np.add.at(expected, places, pull)
    np.testing.assert_allclose(gradients[0], expected, **close)

    codes = scores.argmax(axis=-1)
    if logits == "encoder":
        np.testing.assert_array_equal(learner.encode(rows), codes)
    outside = np.einsum("nmk,mkd->nd", hard, codebooks)
    np.testing.assert_allclose(learner(inputs), outside, **close)
    np.testing.assert_allclose(learner.decode(codes), outside, **close)


def test_default_settings():
    config = KDCodeLearner().get_config()
    expected = {
        "num_codebooks": 32,
        "codebook_size": 16,
        "composition": "linear",
        "logits": "encoder",
        "estimator": "straight_through",
        "refine": None,
    }
    assert {name: config[name] for name in expected} == expected


def test_temperature_follows_the_steps(tmp_path):
    schedule = TemperatureSchedule(base=2.0, rate=1.0, floor=0.1)
    table = clustered_table()
    learner = small_learner(temperature=schedule, eager=False)
    assert learner.current_temperature() == 2.0
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append(
            float(learner.current_temperature())
        )
    )
    learner.train(table, callbacks=[watch])
    np.testing.assert_allclose(seen, 2 / (1 + np.arange(6.0)), rtol=1e-6)
    learner.save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    for one in (learner, again):
        np.testing.assert_allclose(one.current_temperature(), 2 / 7, rtol=1e-6)
    learner.train(table)
    np.testing.assert_allclose(learner.current_temperature(), 2 / 13, rtol=1e-6)
    assert small_learner(temperature=0.7).current_temperature() == 0.7


def test_temperature_reaches_the_graph():
    """A step at a temperature of 1e6 leaves logits nearly as they were."""

    class Ice(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return tf.where(tf.cast(step, tf.float32) < 2, 1.0, 1e6)

        def get_config(self):
            return {}

    learner = small_learner(eager=False, temperature=Ice(), iterations=4)
    learner.compile(keras.optimizers.SGD(1e-2))
    kernels = []
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: kernels.append(
            learner.kernel.numpy().copy()
        )
    )
    learner.train(clustered_table(), callbacks=[keep])
    moves = np.abs(np.diff(kernels, axis=0)).max(axis=(1, 2))
    assert moves[0] > 1e-4 > 1e-6 > moves[1:].max()


@pytest.mark.parametrize(
    "composition, logits",
    [
        *((composition, "encoder") for composition in COMPOSITIONS),
        (kc.compositions.LinearComposition(code_dim=3), "encoder"),
        (MeanComposition(), "encoder"),
        ("concat", "free"),
        ("lstm", "free"),
    ],
    ids=[*COMPOSITIONS, "narrow", "own", "concat free", "lstm free"],
)
def test_every_composition_trains(composition, logits):
    table = clustered_table()
    learner = small_learner(
        composition=composition,
        logits=logits,
        num_codebooks=3,
    )
    learner.train(table)
    losses = learner.history["val_loss"]
    assert losses[-1] < losses[0]
    assert learner.codes.shape == (300, 3)
    assert learner.codebooks.dtype == np.float32
    own = learner.composition
    assert learner.codebooks.shape == own.codebooks_shape
    rows = np.arange(300) if logits == "free" else table
    # The same sums in another order.
    close = {"rtol": 1e-4, "atol": 1e-5}
    expected = own.compose_codes(
        tf.constant(learner.codebooks), tf.constant(learner.codes, "int32")
    )
    decoded = learner.decode(learner.codes)
    np.testing.assert_allclose(decoded, expected, **close)
    assert learner.decode(learner.codes[:0]).shape == (0, 8)
    np.testing.assert_allclose(learner(rows), expected, **close)
    drawn = next(drawn_places(300, None, 32, learner._seeds[4]))
    np.testing.assert_allclose(
        min(losses),
        loss_of(learner, table[drawn], learner.codes[drawn]),
        rtol=1e-4,
    )
    layer = kc.CodeEmbedding(
        300,
        8,
        3,
        6,
        composition=own,
        codes=learner.codes,
        codebooks=learner.codebooks,
    )
    layer.composition.set_weights(own.get_weights())
    np.testing.assert_allclose(layer.embeddings, decoded, **close)


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_layer_from_table(composition):
    table = clustered_table()
    learner = small_learner(composition=composition, refine=None, iterations=1)
    layer = kc.CodeEmbedding.from_table(
        table, 4, 6, composition=composition, learner=learner
    )
    np.testing.assert_allclose(
        layer.embeddings, learner.decode(learner.codes), atol=1e-5
    )


def test_uneven_parts():
    learner = small_learner(num_codebooks=3, composition="concat", iterations=1)
    learner.train(clustered_table())
    assert learner.codebooks.shape == (6, 8)
    first, second = learner.decode([[0, 1, 2], [0, 5, 2]])
    # Widths 3, 3 and 2: only the second part differs.
    np.testing.assert_array_equal(
        first[[0, 1, 2, 6, 7]], second[[0, 1, 2, 6, 7]]
    )
    np.testing.assert_array_equal(first[3:6], learner.codebooks[1, 3:6])
    np.testing.assert_array_equal(second[3:6], learner.codebooks[5, 3:6])


@pytest.mark.parametrize(
    "composition, logits",
    [
        ("sum", "encoder"),
        ("linear", "encoder"),
        ("concat", "encoder"),
        ("linear", "free"),
    ],
)
def test_refine_lowers_the_loss(composition, logits):
    table = clustered_table()
    weight = np.random.default_rng(0).uniform(0.5, 2, size=300)
    kwargs = {"composition": composition, "logits": logits, "iterations": 2}
    plain = small_learner(**kwargs).train(table, weight)
    refined = small_learner(refine=None, **kwargs).train(table, weight)
    assert refined.history["val_loss"] == plain.history["val_loss"]
    losses = [
        loss_of(plain, table, plain.codes, weight),
        *refined.history["refined_loss"],
        loss_of(refined, table, refined.codes, weight),
    ]
    # Least squares has a ridge of 0.01 against about 50 rows a codeword.
    assert (np.diff(losses) < 1e-3).all()
    assert losses[-1] < 0.7 * losses[0]
    new_rows = table + 0.01
    start = refined.logits(new_rows if logits == "encoder" else np.arange(300))
    start = tf.argmax(start, axis=-1).numpy()
    assert loss_of(refined, new_rows) < loss_of(refined, new_rows, start)


def test_scale_and_mean_do_not_matter():
    table = clustered_table()
    # Axes that a linear composition starts from may change their signs.
    for composition in ("sum", "concat"):
        kwargs = {"composition": composition, "iterations": 1}
        one = small_learner(**kwargs).train(table)
        other = small_learner(**kwargs).train(1000 * table - 5000)
        np.testing.assert_allclose(
            1e6 * np.array(one.history["val_loss"]),
            other.history["val_loss"],
            rtol=1e-4,
        )


def test_soft_codes_are_hard_outside_training():
    learner = small_learner(estimator="soft", temperature=5.0, iterations=1)
    learner.train(clustered_table())
    rows = clustered_table()
    np.testing.assert_allclose(
        learner(rows), learner.decode(learner.codes), rtol=1e-4, atol=1e-5
    )
    soft = learner(rows, training=True) - learner(rows)
    assert np.abs(soft).max() > 1


def test_free_logits():
    table = clustered_table()
    learner = small_learner(logits="free", iterations=1).train(table)
    assert learner.kernel.shape == (300, 24)
    before = learner.kernel.numpy().copy()
    learner.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    places = np.array([7, 250, 7, 0])
    learner.fit(places, table[places], verbose=0)
    changed = (learner.kernel.numpy() != before).any(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(changed), [0, 7, 250])
    with pytest.raises(ValueError, match="logits='encoder', or with `refine`"):
        learner.encode(table)
    with pytest.raises(ValueError, match="must have the 300 rows"):
        learner.train(table[:200])
    fresh = small_learner(logits="free")
    with pytest.raises(ValueError, match="must be built by `train`"):
        fresh.fit(places, table[places], verbose=0)


def test_training_touches_rows_of_its_batches():
    table = clustered_table(2000)
    learner = small_learner(
        eager=False, logits="free", iterations=2, batch_size=8
    )
    learner.build(table.shape)
    before = learner.kernel.numpy().copy()
    learner.train(table)
    assert isinstance(learner.optimizer, kc.optimizers.SparseRowOptimizer)
    changed = (learner.kernel.numpy() != before).any(axis=1)
    batches = drawn_places(2000, None, 8, learner._seeds[5])
    drawn = {*next(batches), *next(batches)}
    assert set(np.flatnonzero(changed)) == drawn


@pytest.mark.parametrize("composition", ["linear", "lstm"])
def test_seed_repeats_a_run(composition):
    table = clustered_table()
    kwargs = {"composition": composition, "refine": None, "iterations": 2}
    first = small_learner(**kwargs).train(table)
    second = small_learner(**kwargs).train(table)
    other = small_learner(seed=1, **kwargs).train(table)
    for one, two in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(first.codes, second.codes)
    assert not np.array_equal(first.codebooks, other.codebooks)


def test_interrupt_keeps_the_best(capsys):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.best = self.model.get_weights()

        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == 5:
                raise KeyboardInterrupt

    interrupt = Interrupt()
    learner = small_learner(composition="linear", validation_interval=2)
    learner.train(clustered_table(), callbacks=[interrupt])
    assert "best weights so far are kept" in capsys.readouterr().out
    assert len(learner.history["val_loss"]) == 2
    for weight, best in zip(learner.get_weights(), interrupt.best, strict=True):
        np.testing.assert_array_equal(weight, best)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"composition": "linear", "refine": None},
        {"composition": kc.compositions.LSTMComposition(code_dim=5)},
        {"composition": MeanComposition(), "temperature": 0.5},
        {"composition": "concat", "logits": "free", "refine": None},
        {"learning_rate": keras.optimizers.schedules.CosineDecay(0.1, 9)},
    ],
    ids=["linear", "lstm", "own", "free", "schedule"],
)
def test_save_and_load(tmp_path, kwargs):
    table = clustered_table()
    learner = small_learner(iterations=1, **kwargs).train(table)
    learner.save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    assert isinstance(again, KDCodeLearner)
    assert again.get_config() == learner.get_config()
    np.testing.assert_array_equal(again.codebooks, learner.codebooks)
    np.testing.assert_array_equal(
        again.decode(learner.codes), learner.decode(learner.codes)
    )
    if learner.logits_from == "encoder" or learner.refine is None:
        np.testing.assert_array_equal(
            again.encode(table), learner.encode(table)
        )


def test_training_goes_on_after_loading(tmp_path):
    table = clustered_table()
    learner = small_learner(
        eager=False, composition="linear", logits="free", refine=None
    )
    learner.train(table).save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    assert isinstance(again.optimizer, kc.optimizers.SparseRowOptimizer)
    for one in (learner, again):
        one.train(table)
        assert one.optimizer.iterations == 12
    np.testing.assert_array_equal(again.codes, learner.codes)
    np.testing.assert_array_equal(again.codebooks, learner.codebooks)


@pytest.mark.parametrize("logits", ["encoder", "free"])
@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", "mixed_float16", "float64"]
)
def test_other_precisions(logits, dtype):
    learner = small_learner(dtype=dtype, logits=logits, refine=True)
    table = clustered_table()
    losses = learner.train(table).history["val_loss"]
    assert losses[-1] < losses[0]
    assert learner.codebooks.dtype == np.float32
    assert learner.encode(table).shape == learner.codes.shape


def test_config_round_trip():
    learner = KDCodeLearner(
        composition=kc.compositions.LinearComposition(code_dim=9, name="own"),
        logits="free",
        estimator="soft",
        temperature=TemperatureSchedule(2.0, 0.1, 0.3),
        refine=True,
        name="learner",
    )
    config = learner.get_config()
    again = KDCodeLearner.from_config(config)
    assert again.get_config() == config
    assert isinstance(again.composition, kc.compositions.LinearComposition)


def test_sample_weight_counts():
    # With one bit for three rows, the row without weight is left alone.
    table = np.repeat([[1.0], [-1.0], [5.0]], 20, axis=0)
    weight = np.repeat([1.0, 3.0, 0.0], 20)
    learner = small_learner(
        num_codebooks=1,
        codebook_size=2,
        iterations=20,
        validation_interval=20,
        refine=True,
    )
    learner.train(table, sample_weight=weight)
    np.testing.assert_allclose(
        learner.decode(learner.encode(table[[0, 20]])), [[1], [-1]], atol=0.01
    )


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((50, 3)),
        np.full((50, 3), 7.0),
        np.arange(60).reshape(20, 3) % 5,
        np.ones((1, 3)),
    ],
    ids="zeros constant integers single".split(),
)
@pytest.mark.parametrize("composition", ["concat", "linear"])
def test_unusual_tables(table, composition):
    learner = small_learner(
        num_codebooks=2, composition=composition, refine=None, iterations=1
    )
    learner.train(table)
    assert np.isfinite(learner.codebooks).all()
    assert np.isfinite(learner.decode(learner.codes)).all()


@keras.saving.register_keras_serializable(package="tests")
class BoundedComposition(kc.compositions.Composition):
    """Vectors between -1 and 1, whatever the codewords are."""

    def call(self, codewords):
        return keras.ops.tanh(keras.ops.sum(codewords, axis=1))


def relative_error(learner, table):
    energy = np.square(table - table.mean(axis=0)).sum(axis=1).mean()
    return loss_of(learner, table) / energy


@pytest.mark.parametrize(
    "composition, logits",
    [
        ("linear", "free"),
        ("lstm", "encoder"),
        (kc.compositions.LSTMComposition(code_dim=5), "free"),
        (BoundedComposition(), "encoder"),
    ],
    ids=["linear", "lstm", "narrow", "own"],
)
def test_scale_of_the_table_does_not_matter(composition, logits):
    table = clustered_table()
    first, *others = (
        small_learner(
            composition=composition,
            logits=logits,
            iterations=2,
            validation_interval=1,
        ).train(scale * table)
        for scale in (1.0, 2.0**-30, 2.0**30)
    )
    error = loss_of(first, table, first.codes)
    # Powers of two round nothing in another way.
    for learner, scale in zip(others, (2.0**-30, 2.0**30), strict=True):
        assert np.mean(learner.codes != first.codes) < 0.01
        loss = loss_of(learner, scale * table, learner.codes)
        assert loss == pytest.approx(scale**2 * error, rel=0.01)
        np.testing.assert_allclose(
            learner.history["val_loss"],
            np.multiply(scale**2, first.history["val_loss"]),
            rtol=0.01,
        )


def test_lstm_learns_tables_of_any_scale():
    table = clustered_table()
    errors = []
    for scale in (0.03, 30):
        learner = small_learner(
            composition="lstm",
            learning_rate=2e-2,
            batch_size=64,
            iterations=25,
            validation_interval=25,
        ).train(scale * table)
        errors.append(relative_error(learner, scale * table))
    # Unscaled, that of the larger was 5.9, the other's 0.5.
    assert max(errors) < 0.25
    np.testing.assert_allclose(*errors, rtol=0.1)


@pytest.mark.parametrize(
    "composition",
    ["lstm", BoundedComposition()],
    ids=["lstm", "own"],
)
def test_scale_is_part_of_the_layer(composition, tmp_path):
    table = 30 * clustered_table()
    learner = small_learner(composition=composition, iterations=1)
    layer = kc.CodeEmbedding.from_table(
        table, 4, 6, composition=composition, learner=learner
    )
    decoded = learner.decode(learner.codes)
    assert np.abs(decoded).max() > 30
    close = {"rtol": 1e-5, "atol": 1e-3}
    np.testing.assert_allclose(layer.embeddings, decoded, **close)
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.layers[0].embeddings, layer.embeddings)
    export = kc.export.export_litert(
        model, tmp_path / "model.tflite", verbose=0
    )
    assert export.max_error < 1e-3
    (row,) = kc.reports.size_report(model).embeddings
    # A number a column, and the scale.
    plain = kc.CodeEmbedding(len(table), 8, 4, 6, composition=composition)
    plain.build()
    model = keras.Sequential([keras.Input((3,), dtype="int32"), plain])
    (plain,) = kc.reports.size_report(model).embeddings
    assert row.num_values == plain.num_values + 9
    # What a learner has made is learned anew, and put into no other.
    other = small_learner(composition=learner.composition, iterations=1)
    other.train(table)
    assert len(other.get_weights()) == len(learner.get_weights())
    with pytest.raises(ValueError, match="`composition` must be linear"):
        kc.CodeEmbedding(
            9, 8, 4, 6, composition=learner.composition, learn_codes="follow"
        )


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_codebooks", 0),
        ("codebook_size", 1),
        ("composition", "product"),
        ("logits", "table"),
        ("estimator", "gumbel"),
        ("temperature", 0.0),
        ("composition", kc.compositions.LSTMComposition),
        ("refine", "no"),
        ("seed", -1),
        ("seed", 1.5),
        ("seed", True),
        ("verbose", 3),
    ],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be.*Received: {name}"):
        KDCodeLearner(**{name: value})


@pytest.mark.parametrize("composition", ["lstm", MeanComposition()])
def test_refine_where_it_cannot(composition):
    with pytest.raises(ValueError, match="`refine` must be False.*Received"):
        KDCodeLearner(composition=composition, refine=True)


def test_bad_tables():
    learner = small_learner(composition="concat")
    table = clustered_table()
    with pytest.raises(ValueError, match="call `train` first"):
        learner.encode(table)
    with pytest.raises(ValueError, match="call `train` first"):
        learner.decode(np.zeros((1, 4), "uint8"))
    with pytest.raises(ValueError, match="at most `output_dim`"):
        learner.train(table[:, :3])
    learner.train(table)
    with pytest.raises(ValueError, match="`table` must have 8 columns"):
        learner.train(table[:, :3])
    with pytest.raises(ValueError, match="`codes` must be from 0 to 5"):
        learner.decode(np.full((1, 4), 6))


@pytest.mark.parametrize("composition", ["concat", "linear"])
def test_gumbel_learner_composes(composition, tmp_path):
    table = clustered_table()
    learner = make_learner(
        kc.learners.GumbelCodeLearner,
        num_codebooks=4,
        codebook_size=6,
        composition=composition,
        iterations=1,
        refine=True,
        seed=0,
        verbose=0,
    )
    layer = kc.CodeEmbedding.from_table(table, 4, 6, learner=learner)
    decoded = learner.decode(learner.codes)
    np.testing.assert_allclose(layer.embeddings, decoded, atol=1e-5)
    learner.save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    np.testing.assert_array_equal(again.decode(learner.codes), decoded)
