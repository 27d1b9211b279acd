"""Learners that train codes by gradients: `KDCodeLearner`,
`GumbelCodeLearner`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_learners import clustered_table
from small_learners import make_learner

import keras_compembed as kc
from keras_compembed.compositions.composition import LSTMComposition
from keras_compembed.learners import GumbelCodeLearner
from keras_compembed.learners import KDCodeLearner
from keras_compembed.learners.training import TemperatureSchedule

TABLE = clustered_table(mean=2)


@keras.saving.register_keras_serializable(package="tests")
class BoundedComposition(kc.compositions.Composition):
    """Vectors between -1 and 1, whatever the codewords are."""

    def call(self, codewords):
        return keras.ops.tanh(keras.ops.sum(codewords, axis=1))


def small_learner(cls=KDCodeLearner, eager=True, **kwargs):
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
    return make_learner(cls, eager, **kwargs)


def seeing(cls, seen):
    """A learner that puts what its `fit` was given into a dict."""

    class Seeing(cls):
        def fit(self, x, **kwargs):
            seen["batches"], seen["validation"] = x, kwargs["validation_data"]
            return super().fit(x, **kwargs)

    return Seeing


def loss_of(learner, table, codes=None, weights=None):
    codes = learner.encode(table) if codes is None else codes
    squares = np.square(learner.decode(codes) - table).sum(axis=1)
    return np.average(squares, weights=weights)


def softmax(x):
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    "logits, estimator, temperature",
    [
        ("encoder", "straight_through", 0.4),
        ("encoder", "soft", 0.4),
        ("free", "straight_through", 2.5),
    ],
)
def test_algorithm_1_forward_and_backward(logits, estimator, temperature):
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


class FixedNoise(GumbelCodeLearner):
    """Takes its noise from an attribute."""

    noise = np.float32(0)

    def gumbel_noise(self, shape):
        return tf.constant(self.noise)


def test_forward_pass_equals_equations_4_to_8():
    temperature = 0.3
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(7, 5))
    noise = -np.log(-np.log(rng.uniform(size=(7, 3, 4))))
    learner = FixedNoise(3, 4, temperature=temperature, seed=0)
    learner.noise = noise.astype("float32")
    learner.build((None, 5))
    shapes = [(5, 6), (6,), (6, 12), (12,), (12, 5)]
    values = [3 * rng.normal(size=shape) for shape in shapes]
    theta, b, theta_m, b_m, codewords = values
    learner.encoder.set_weights(values[:4])
    learner.codewords.assign(codewords.reshape(3, 4, 5))

    hidden = np.tanh(rows @ theta + b)  # equation 7
    alpha = np.log1p(np.exp(hidden @ theta_m + b_m))  # equation 8
    alpha = alpha.reshape(7, 3, 4)
    picks = softmax((np.log(alpha) + noise) / temperature)  # equations 5, 6
    expected = picks.reshape(7, 12) @ codewords  # equation 4

    # About 20 float32 operations on values of size about 10.
    np.testing.assert_allclose(
        learner(rows, training=True), expected, rtol=1e-4, atol=1e-4
    )
    codes = alpha.argmax(axis=-1)
    np.testing.assert_array_equal(learner.encode(rows), codes)
    expected = np.eye(4)[codes].reshape(7, 12) @ codewords
    np.testing.assert_allclose(learner(rows), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        learner.decode(codes), expected, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        learner.compute_loss(rows, y_pred=learner(rows)),
        np.square(rows - expected).sum(axis=1).mean(),
        rtol=1e-5,
    )


def test_picks_of_any_logits():
    """Noise takes back what the logits are, so that all count the same."""
    logits = np.float32([-1e30, -1000.0, -104, -88, -15.1, -14.9, -1, 0, 5, 99])
    wide = logits.astype("float64")
    safe = wide > -700
    softplus = np.where(safe, np.logaddexp(0, wide), 1)
    scores = np.where(safe, np.log(softplus), wide)
    learner = FixedNoise(1, 10)
    learner.noise = np.float32(-scores)
    tensor = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        picks = learner.picks(tensor[None, None])
    np.testing.assert_allclose(picks[0, 0], np.full(10, 0.1), rtol=1e-5)
    jacobian = np.diag(np.full(10, 0.1)) - 0.01
    slope = np.exp(-np.logaddexp(0, -wide)) / softplus
    np.testing.assert_allclose(
        tape.jacobian(picks, tensor)[0, 0],
        jacobian * np.where(safe, slope, 1),
        rtol=1e-4,
        atol=1e-7,
    )


def test_noise_is_gumbel_and_new_each_time():
    learner = small_learner(GumbelCodeLearner)
    first = learner.gumbel_noise((200, 10, 10)).numpy()
    second = learner.gumbel_noise((200, 10, 10)).numpy()
    assert np.isfinite(first).all()
    assert not np.array_equal(first, second)
    # Mean 0.5772, variance pi^2/6: the mean of 20,000 is off by 0.009.
    assert first.mean() == pytest.approx(np.euler_gamma, abs=0.05)
    assert first.var() == pytest.approx(np.pi**2 / 6, abs=0.15)


def test_temperature_follows_the_steps(tmp_path):
    schedule = TemperatureSchedule(base=2.0, rate=1.0, floor=0.1)
    learner = small_learner(temperature=schedule)
    assert learner.current_temperature() == 2.0
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append(
            float(learner.current_temperature())
        )
    )
    learner.train(TABLE, callbacks=[watch])
    np.testing.assert_allclose(seen, 2 / (1 + np.arange(6.0)), rtol=1e-6)
    learner.save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    for one in (learner, again):
        np.testing.assert_allclose(one.current_temperature(), 2 / 7, rtol=1e-6)
    learner.train(TABLE)
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
    learner.train(TABLE, callbacks=[keep])
    moves = np.abs(np.diff(kernels, axis=0)).max(axis=(1, 2))
    assert moves[0] > 1e-4 > 1e-6 > moves[1:].max()


@pytest.mark.parametrize(
    "composition, kwargs",
    [
        ("sum", {}),
        ("lstm", {}),
        (BoundedComposition(), {}),
        ("concat", {"logits": "free"}),
        ("linear", {"cls": GumbelCodeLearner, "refine": True}),
    ],
    ids="sum lstm own concat-free gumbel-linear".split(),
)
def test_every_composition_trains(composition, kwargs):
    seen = {}
    kwargs = {"cls": KDCodeLearner, **kwargs}
    kwargs["cls"] = seeing(kwargs["cls"], seen)
    learner = small_learner(composition=composition, num_codebooks=3, **kwargs)
    layer = kc.CodeEmbedding.from_table(
        TABLE, 3, 6, composition=composition, learner=learner
    )
    losses = learner.history["val_loss"]
    assert losses[-1] < losses[0]
    assert learner.codes.shape == (300, 3)
    assert learner.codebooks.dtype == np.float32
    own = learner.composition
    assert learner.codebooks.shape == own.codebooks_shape
    # The same sums in another order.
    close = {"rtol": 1e-4, "atol": 1e-5}
    expected = own.compose_codes(
        tf.constant(learner.codebooks), tf.constant(learner.codes, "int32")
    )
    decoded = learner.decode(learner.codes)
    np.testing.assert_allclose(decoded, expected, **close)
    np.testing.assert_allclose(layer.embeddings, decoded, **close)
    assert learner.decode(learner.codes[:0]).shape == (0, 8)
    if learner.refine:
        return
    rows = np.arange(300) if "logits" in kwargs else TABLE
    np.testing.assert_allclose(learner(rows), expected, **close)
    # Rows are those of the table, in memory of their own: TensorFlow would
    # write over both at once.
    inputs, rows = seen["validation"]
    assert not np.shares_memory(inputs, rows)
    places = [np.abs(TABLE - row).sum(axis=1).argmin() for row in rows]
    np.testing.assert_array_equal(rows, TABLE[places])
    assert not np.shares_memory(rows, TABLE)
    np.testing.assert_allclose(
        min(losses), loss_of(learner, rows, learner.codes[places]), rtol=1e-4
    )


@pytest.mark.parametrize(
    "composition, kwargs",
    [
        ("concat", {}),
        ("linear", {"logits": "free"}),
        ("sum", {"cls": GumbelCodeLearner}),
    ],
)
def test_refine_lowers_the_loss(composition, kwargs):
    weight = np.random.default_rng(0).uniform(0.5, 2, size=300)
    kwargs = {"composition": composition, "iterations": 2, **kwargs}
    plain, refined = (
        small_learner(refine=refine, **kwargs).train(TABLE, weight)
        for refine in (False, True)
    )
    assert refined.history["val_loss"] == plain.history["val_loss"]
    losses = [
        loss_of(plain, TABLE, plain.codes, weight),
        *refined.history["refined_loss"],
        loss_of(refined, TABLE, refined.codes, weight),
    ]
    # Least squares has a ridge of 0.01 against about 50 rows a codeword.
    assert (np.diff(losses) < 1e-3).all()
    assert losses[-1] < 0.7 * losses[0]
    new_rows = TABLE + 0.01
    start = refined.logits(np.arange(300) if "logits" in kwargs else new_rows)
    start = tf.argmax(start, axis=-1).numpy()
    assert loss_of(refined, new_rows) < loss_of(refined, new_rows, start)


@pytest.mark.parametrize(
    "composition, logits",
    [("linear", "free"), (LSTMComposition(code_dim=5), "encoder")],
    ids=["linear", "lstm"],
)
def test_scale_of_the_table_does_not_matter(composition, logits):
    scales = 1.0, 2.0**-30, 2.0**30
    first, *others = (
        small_learner(
            composition=composition,
            logits=logits,
            iterations=2,
            validation_interval=1,
        ).train(scale * TABLE)
        for scale in scales
    )
    error = loss_of(first, TABLE, first.codes)
    # Powers of two round nothing in another way.
    for learner, scale in zip(others, scales[1:], strict=True):
        assert np.mean(learner.codes != first.codes) < 0.01
        loss = loss_of(learner, scale * TABLE, learner.codes)
        assert loss == pytest.approx(scale**2 * error, rel=0.01)
        np.testing.assert_allclose(
            learner.history["val_loss"],
            np.multiply(scale**2, first.history["val_loss"]),
            rtol=0.01,
        )
    # Before there were units, LSTMs learned nothing of large tables.
    assert first.history["val_loss"][-1] < first.history["val_loss"][0]


def test_free_logits():
    learner = small_learner(eager=False, logits="free", iterations=2)
    learner.build(TABLE.shape)

    def changed(before):
        return np.flatnonzero((learner.kernel.numpy() != before).any(axis=1))

    learner.train(TABLE)
    assert isinstance(learner.optimizer, kc.optimizers.SparseRowOptimizer)
    before = learner.kernel.numpy().copy()
    learner.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    places = np.array([7, 250, 7, 0])
    learner.fit(places, TABLE[places], verbose=0)
    np.testing.assert_array_equal(changed(before), [0, 7, 250])
    with pytest.raises(ValueError, match="`logits` must be 'encoder'"):
        learner.encode(TABLE)
    with pytest.raises(ValueError, match="`table` must have the same"):
        learner.train(TABLE[:200])
    fresh = small_learner(logits="free")
    with pytest.raises(ValueError, match="`train`"):
        fresh.fit(places, TABLE[places], verbose=0)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"composition": "lstm"},
        {"cls": GumbelCodeLearner, "refine": True},
    ],
    ids=["lstm", "gumbel"],
)
def test_seed_repeats_a_run(kwargs):
    one, two, other = (
        small_learner(iterations=2, seed=seed, **kwargs).train(TABLE)
        for seed in (0, 0, 1)
    )
    for first, second in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.codes, two.codes)
    assert one.history == two.history
    assert not np.array_equal(one.codebooks, other.codebooks)
    keras.utils.set_random_seed(3)
    first = small_learner(iterations=2, **kwargs | {"seed": None}).train(TABLE)
    keras.utils.set_random_seed(3)
    again = small_learner(iterations=2, **kwargs | {"seed": None}).train(TABLE)
    np.testing.assert_array_equal(first.codebooks, again.codebooks)


@pytest.mark.parametrize(
    "kwargs",
    [
        {
            "composition": LSTMComposition(code_dim=5, name="own"),
            "estimator": "soft",
            "temperature": (2.0, 0.1, 0.3),
        },
        {"composition": "concat", "logits": "free", "refine": None},
        {
            "cls": GumbelCodeLearner,
            "learning_rate": keras.optimizers.schedules.CosineDecay(0.1, 9),
        },
    ],
    ids=["lstm", "free", "gumbel"],
)
def test_save_and_load(tmp_path, kwargs):
    learner = small_learner(iterations=1, **kwargs).train(TABLE)
    learner.save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    assert type(again) is type(learner)
    assert again.get_config() == learner.get_config()
    assert type(again.composition) is type(learner.composition)
    assert again.codes is None
    np.testing.assert_array_equal(again.codebooks, learner.codebooks)
    np.testing.assert_array_equal(
        again.decode(learner.codes), learner.decode(learner.codes)
    )
    new_rows = TABLE + 0.1
    np.testing.assert_array_equal(
        again.encode(new_rows), learner.encode(new_rows)
    )


@pytest.mark.parametrize(
    "dtype, logits", [("mixed_float16", "free"), ("float64", "encoder")]
)
def test_other_precisions(dtype, logits):
    learner = small_learner(dtype=dtype, logits=logits, refine=True)
    losses = learner.train(TABLE).history["val_loss"]
    assert losses[-1] < losses[0]
    assert learner.codebooks.dtype == np.float32
    assert learner.encode(TABLE).shape == learner.codes.shape


def test_sample_weight_counts():
    table = np.repeat([[1.0], [-1.0], [5.0]], 20, axis=0)
    weight = np.repeat([1.0, 3.0, 0.0], 20)
    seen = {}
    learner = small_learner(
        seeing(KDCodeLearner, seen),
        num_codebooks=1,
        codebook_size=2,
        iterations=20,
        validation_interval=20,
        validation_rows=4000,
        refine=True,
    )
    learner.train(table, sample_weight=weight)
    values, counts = np.unique(seen["validation"][1], return_counts=True)
    np.testing.assert_array_equal(values, [-1.0, 1.0])
    # Binomial(4000, 3/4): standard deviation 27.
    assert abs(counts[0] - 3000) < 140
    # With one bit for three rows, the row without weight is left alone.
    decoded = learner.decode(learner.encode(table[[0, 20]]))
    np.testing.assert_allclose(decoded, [[1], [-1]], atol=0.01)


def test_codes_above_256_are_found_in_parts():
    learner = small_learner(
        num_codebooks=2, codebook_size=16384, iterations=1, batch_size=4
    )
    codes = learner.train(TABLE).codes
    assert codes.dtype == np.uint16
    logits = learner.logits(TABLE[60:70])
    np.testing.assert_array_equal(
        codes[60:70], tf.argmax(logits, axis=2).numpy()
    )
    np.testing.assert_array_equal(codes, learner.encode(TABLE))


class Spoil(keras.callbacks.Callback):
    """Remembers the codebooks of an epoch, and spoils those of later ones."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch > 1:
            self.model.optimizer.learning_rate = 10.0

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.codebooks = self.model.codebooks


def test_best_weights_are_kept(tmp_path):
    # Steps are rounded up to whole epochs.
    spoil, logged = Spoil(), []
    log = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logged.append(logs)
    )
    learner = small_learner(
        iterations=7, validation_interval=2, validation_rows=100
    )
    csv = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    learner.train(TABLE, callbacks=[spoil, log, csv])
    assert learner.optimizer.iterations == 8
    losses = learner.history["val_loss"]
    assert len(losses) == 4 and np.argmin(losses) == 1
    np.testing.assert_array_equal(learner.codebooks, spoil.codebooks)
    np.testing.assert_array_equal(learner.codes, learner.encode(TABLE))
    assert [logs["val_loss"] for logs in logged] == losses
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 5
    few = small_learner(iterations=1, validation_interval=2)
    assert few.train(TABLE).optimizer.iterations == 1


def test_own_optimizer_and_plain_fit():
    learner = small_learner(GumbelCodeLearner, eager=False)
    learner.compile(optimizer=keras.optimizers.RMSprop(1e-2))
    dataset = tf.data.Dataset.from_tensor_slices(TABLE).batch(50)
    result = learner.fit(
        dataset, epochs=3, validation_data=(TABLE,), shuffle=False, verbose=0
    )
    assert isinstance(result, keras.callbacks.History)
    assert result.history == learner.history
    assert result.history["loss"][2] < result.history["loss"][0]
    np.testing.assert_allclose(
        [learner.evaluate(TABLE, verbose=0), result.history["val_loss"][2]],
        loss_of(learner, TABLE),
        rtol=1e-5,
    )
    assert learner.predict(TABLE, verbose=0).shape == TABLE.shape
    learner.train(TABLE)
    assert isinstance(learner.optimizer, keras.optimizers.RMSprop)
    assert learner.codes is not None
    # Weights have changed, so the codes of before are none of theirs.
    assert learner.fit(TABLE, TABLE, verbose=0).epoch == [0]
    assert learner.codes is None


@pytest.mark.apart
def test_jit_compile():
    # XLA has random numbers of its own.
    losses = []
    for jit_compile in (False, True):
        learner = small_learner(FixedNoise, eager=False)
        learner.compile(keras.optimizers.SGD(1e-3), jit_compile=jit_compile)
        losses.append(learner.train(TABLE).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    noise = tf.function(
        lambda: GumbelCodeLearner.gumbel_noise(learner, (50, 4, 6)),
        jit_compile=True,
    )
    assert np.isfinite(noise()).all()


def test_loss_that_overflows():
    learner = small_learner(GumbelCodeLearner, learning_rate=1e30)
    with pytest.raises(ValueError, match="learning_rate"):
        learner.train(TABLE)
