import keras
import numpy as np
import pytest
import tensorflow as tf
from small_learners import clustered_table
from small_learners import make_learner

from keras_compembed import CodeEmbedding
from keras_compembed.learners import CodeLearner
from keras_compembed.learners import GumbelCodeLearner
from keras_compembed.learners import Training
from keras_compembed.learners.gumbel_code_learner import _log_softplus
from keras_compembed.learners.training import drawn_places


def small_learner(eager=True, **kwargs):
    kwargs = {
        "num_codebooks": 4,
        "codebook_size": 6,
        "learning_rate": 1e-2,
        "batch_size": 32,
        "iterations": 6,
        "validation_interval": 2,
        "validation_rows": 100,
        "seed": 0,
        "verbose": 0,
    } | kwargs
    return make_learner(GumbelCodeLearner, eager, **kwargs)


@pytest.fixture(scope="module")
def trained():
    return small_learner(
        eager=False, iterations=400, validation_interval=100
    ).train(clustered_table())


def mean_squared_distance(learner, table):
    rows = learner.decode(learner.encode(table))
    return np.square(rows - table).sum(axis=1).mean()


class FixedNoise(GumbelCodeLearner):
    """Takes its noise from an attribute."""

    noise = np.float32(0)

    def gumbel_noise(self, shape):
        return tf.constant(self.noise)


def softmax(x):
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_forward_pass_equals_equations_4_to_8(temperature):
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


def test_paper_settings_are_the_default():
    config = GumbelCodeLearner().get_config()
    paper = {
        "num_codebooks": 32,
        "codebook_size": 16,
        "hidden_units": 256,
        "temperature": 1.0,
        "learning_rate": 1e-4,
        "batch_size": 128,
        "iterations": 200_000,
        "validation_interval": 1000,
        "refine": False,
    }
    config |= config["training"]["config"]
    assert {name: config[name] for name in paper} == paper


def test_log_softplus_for_any_number():
    x = tf.constant([-1e30, -1000.0, -104, -88, -15.1, -14.9, -1, 0, 5, 1e30])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _log_softplus(x)
    wide = x.numpy().astype("float64")
    softplus = np.logaddexp(0, wide)
    safe = wide > -700
    expected = np.where(safe, np.log(np.where(safe, softplus, 1)), wide)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)
    slope = np.exp(-np.logaddexp(0, -wide)) / np.where(safe, softplus, 1)
    slope = np.where(safe, slope, 1)
    np.testing.assert_allclose(tape.gradient(y, x), slope, rtol=1e-5)


def test_noise_is_gumbel_and_new_each_time():
    learner = small_learner()
    first = learner.gumbel_noise((200, 10, 10)).numpy()
    second = learner.gumbel_noise((200, 10, 10)).numpy()
    assert np.isfinite(first).all()
    assert not np.array_equal(first, second)
    # Mean 0.5772, variance pi^2/6: the mean of 20,000 is off by 0.009.
    assert first.mean() == pytest.approx(np.euler_gamma, abs=0.05)
    assert first.var() == pytest.approx(np.pi**2 / 6, abs=0.15)


def test_before_training():
    learner = small_learner()
    assert isinstance(learner, CodeLearner)
    assert learner.codes is None
    assert learner.codebooks is None
    assert learner.history == {}


def test_train_on_a_clustered_table(trained):
    table = clustered_table()
    assert trained.codes.shape == (300, 4)
    assert trained.codes.dtype == np.uint8
    assert trained.codes.max() < 6
    assert trained.codebooks.shape == (4, 6, 8)
    assert trained.codebooks.dtype == np.float32
    assert {key: len(value) for key, value in trained.history.items()} == {
        "loss": 4,
        "val_loss": 4,
    }
    assert trained.optimizer.iterations == 400
    np.testing.assert_allclose(trained.optimizer.learning_rate, 1e-2)
    np.testing.assert_array_equal(trained.encode(table), trained.codes)
    energy = np.square(table - table.mean(axis=0)).sum(axis=1).mean()
    assert trained.history["loss"][-1] < 0.5 * trained.history["loss"][0]
    assert mean_squared_distance(trained, table) < 0.3 * energy


def test_validation_loss_is_that_of_the_codes(trained):
    table = clustered_table()
    rows = table[next(drawn_places(300, None, 100, trained._seeds[4]))]
    # The same sums in another order.
    np.testing.assert_allclose(
        min(trained.history["val_loss"]),
        mean_squared_distance(trained, rows),
        rtol=1e-5,
    )


def test_parts_of_a_batch_share_no_memory():
    # TensorFlow would write over both at once.
    table = clustered_table()
    learner = small_learner()
    inputs, rows = next(learner._batches(table, None, 32, 5))
    np.testing.assert_array_equal(inputs, rows)
    assert not np.shares_memory(inputs, rows)
    assert not np.shares_memory(inputs, table)


class Spoil(keras.callbacks.Callback):
    """Remembers the codebooks of an epoch, and spoils those of later ones."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch > self.epoch:
            self.model.optimizer.learning_rate = 10.0

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.epoch:
            self.codebooks = self.model.codebooks


def test_best_weights_are_kept():
    table = clustered_table()
    spoil = Spoil(epoch=1)
    learner = small_learner(iterations=8).train(table, callbacks=[spoil])
    assert np.argmin(learner.history["val_loss"]) == 1
    assert len(learner.history["val_loss"]) == 4
    np.testing.assert_array_equal(learner.codebooks, spoil.codebooks)
    np.testing.assert_array_equal(learner.codes, learner.encode(table))


class Interrupt(Spoil):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == 5:
            raise KeyboardInterrupt


def test_interrupt_keeps_the_best(capsys):
    table = clustered_table()
    interrupt = Interrupt(epoch=0)
    learner = small_learner().train(table, callbacks=[interrupt])
    assert "best weights so far are kept" in capsys.readouterr().out
    assert len(learner.history["val_loss"]) == 2
    assert learner.optimizer.iterations == 5
    np.testing.assert_array_equal(learner.codebooks, interrupt.codebooks)
    np.testing.assert_array_equal(learner.codes, learner.encode(table))
    # Another table, so that nothing of the interrupted run is left over.
    learner.optimizer.learning_rate = 1e-3
    learner.train(-table)
    assert len(learner.history["val_loss"]) == 3
    rows = -table[next(drawn_places(300, None, 100, learner._seeds[4]))]
    assert min(learner.history["val_loss"]) == pytest.approx(
        mean_squared_distance(learner, rows), rel=1e-5
    )


def test_interrupt_before_the_first_validation():
    class AtOnce(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    learner = small_learner().train(clustered_table(), callbacks=[AtOnce()])
    assert learner.history == {}
    assert learner.codes.shape == (300, 4)


def test_seed_repeats_a_run():
    table = clustered_table()
    first, second, other = (
        small_learner(refine=True, iterations=2, seed=seed).train(table)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.codebooks, second.codebooks)
    np.testing.assert_array_equal(first.codes, second.codes)
    assert first.history == second.history
    assert not np.array_equal(first.codebooks, other.codebooks)


def test_keras_seed_repeats_a_run():
    table = clustered_table()
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        learner = small_learner(seed=None, iterations=2)
        runs.append(learner.train(table).codebooks)
    np.testing.assert_array_equal(*runs)


def test_callbacks_are_called(tmp_path):
    epochs = []
    learner = small_learner().train(
        clustered_table(),
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: epochs.append(logs)
            ),
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        ],
    )
    assert [logs["val_loss"] for logs in epochs] == learner.history["val_loss"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4


def test_iterations_are_rounded_up_to_validations():
    learner = small_learner(iterations=3).train(clustered_table())
    assert learner.optimizer.iterations == 4
    learner = small_learner(iterations=1).train(clustered_table())
    assert learner.optimizer.iterations == 1


def test_own_optimizer_and_plain_fit():
    table = clustered_table()
    learner = small_learner(eager=False)
    learner.compile(optimizer=keras.optimizers.RMSprop(1e-2))
    dataset = tf.data.Dataset.from_tensor_slices(table).batch(50)
    result = learner.fit(
        dataset, epochs=3, validation_data=(table,), shuffle=False, verbose=0
    )
    assert isinstance(result, keras.callbacks.History)
    assert result.history == learner.history
    assert result.history["loss"][2] < result.history["loss"][0]
    np.testing.assert_allclose(
        [learner.evaluate(table, verbose=0), result.history["val_loss"][2]],
        mean_squared_distance(learner, table),
        rtol=1e-5,
    )
    assert learner.predict(table, verbose=0).shape == table.shape
    assert learner.fit(table, table, verbose=0).epoch == [0]
    learner.train(table)
    assert isinstance(learner.optimizer, keras.optimizers.RMSprop)


def test_jit_compile():
    # XLA has random numbers of its own.
    table = clustered_table()
    losses = []
    for jit_compile in (False, True):
        learner = FixedNoise(
            4,
            6,
            training=Training(iterations=6, validation_interval=3),
            seed=0,
            verbose=0,
        )
        learner.compile(keras.optimizers.SGD(1e-3), jit_compile=jit_compile)
        losses.append(learner.train(table).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    noise = tf.function(
        lambda: GumbelCodeLearner.gumbel_noise(learner, (50, 4, 6)),
        jit_compile=True,
    )
    assert np.isfinite(noise()).all()


@pytest.mark.parametrize("refine", [False, True])
def test_save_and_load(tmp_path, refine):
    table = clustered_table()
    learner = small_learner(refine=refine, iterations=2).train(table)
    learner.save(tmp_path / "learner.keras")
    again = keras.saving.load_model(tmp_path / "learner.keras")
    assert isinstance(again, GumbelCodeLearner)
    assert again.get_config() == learner.get_config()
    new_rows = clustered_table() + 0.1
    np.testing.assert_array_equal(
        again.encode(new_rows), learner.encode(new_rows)
    )
    np.testing.assert_array_equal(again.codebooks, learner.codebooks)
    assert again.codes is None
    again.train(table)
    assert again.optimizer.iterations == 4


def test_config_round_trip():
    learner = small_learner(
        hidden_units=9, temperature=0.5, refine=True, name="learner"
    )
    config = learner.get_config()
    assert GumbelCodeLearner.from_config(config).get_config() == config


def test_sample_weight_counts():
    table = np.repeat([[1.0], [-1.0], [5.0]], 20, axis=0)
    weight = np.repeat([1.0, 3.0, 0.0], 20)
    rows = table[next(drawn_places(60, weight, 4000, seed=0))]
    values, counts = np.unique(rows, return_counts=True)
    np.testing.assert_array_equal(values, [-1.0, 1.0])
    # Binomial(4000, 3/4): standard deviation 27.
    assert abs(counts[0] - 3000) < 140

    # With one bit for three rows, the row without weight is left alone.
    learner = small_learner(
        eager=False,
        num_codebooks=1,
        codebook_size=2,
        iterations=300,
        validation_interval=50,
    )
    learner.train(table, sample_weight=weight)
    np.testing.assert_allclose(
        learner.decode(learner.encode(table[[0, 20]])), [[1], [-1]], atol=0.3
    )


def test_refine_lowers_the_loss():
    table = clustered_table()
    weight = np.random.default_rng(0).uniform(0.5, 2, size=300)
    plain, refined = (
        small_learner(iterations=2, refine=refine).train(table, weight)
        for refine in (False, True)
    )

    def loss(learner):
        rows = learner.decode(learner.codes)
        return np.average(np.square(rows - table).sum(axis=1), weights=weight)

    # Least squares has a ridge of 0.01 against about 50 rows a codeword.
    losses = [loss(plain), *refined.history["refined_loss"], loss(refined)]
    assert (np.diff(losses) < 1e-3).all()
    assert losses[-1] < 0.5 * losses[0]
    assert refined.history["val_loss"] == plain.history["val_loss"]

    by_encoder = refined.decode(refined._argmax_codes(table))
    assert (
        mean_squared_distance(refined, table)
        < 0.9 * np.square(by_encoder - table).sum(axis=1).mean()
    )


def float_tables():
    table = clustered_table()
    wide = np.zeros((600, 16), "float32")
    wide[::2, ::2] = table
    return {
        "float64": table.astype("float64"),
        "not contiguous": wide[::2, ::2],
        "Fortran order": np.asfortranarray(table),
        "list": table.tolist(),
    }


def one_step():
    return small_learner(iterations=1, validation_interval=1)


@pytest.fixture(scope="module")
def expected():
    return one_step().train(clustered_table())


@pytest.mark.parametrize("name", float_tables())
def test_tables_of_the_same_numbers(name, expected):
    learner = one_step().train(float_tables()[name])
    np.testing.assert_array_equal(learner.codes, expected.codes)
    np.testing.assert_array_equal(learner.codebooks, expected.codebooks)


def test_memory_mapped_float16(tmp_path):
    table = clustered_table().astype("float16")
    np.save(tmp_path / "table.npy", table)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    learner = one_step().train(mapped)
    expected = one_step().train(table.astype("float32"))
    np.testing.assert_array_equal(learner.codes, expected.codes)


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((50, 3)),
        np.full((50, 3), 7.0),
        np.hstack([np.ones((50, 1)), clustered_table(50, 3)]),
        np.arange(60).reshape(20, 3) % 5,
        np.eye(3, dtype=bool),
        np.ones((1, 1)),
        clustered_table(5),
    ],
    ids="zeros constant column integers booleans single few".split(),
)
def test_unusual_tables(table):
    learner = small_learner(refine=True, iterations=1).train(table)
    assert learner.codes.shape == (len(table), 4)
    assert np.isfinite(learner.codebooks).all()
    assert np.isfinite(learner.history["val_loss"]).all()
    assert learner.codes.max() < 6


def test_codes_above_256():
    learner = small_learner(num_codebooks=2, codebook_size=300, iterations=1)
    assert learner.train(clustered_table()).codes.dtype == np.uint16


def test_encode_in_chunks(monkeypatch, trained):
    monkeypatch.setattr(
        "keras_compembed.learners.gradient_code_learner._CHUNK_LOGITS", 24 * 7
    )
    codes = trained.encode(clustered_table())
    np.testing.assert_array_equal(codes, trained.codes)


def test_layer_from_learner():
    table = clustered_table()
    learner = small_learner(iterations=1)
    layer = CodeEmbedding.from_table(
        table, num_codebooks=4, codebook_size=6, learner=learner
    )
    # The sum of 4 codewords in two orders.
    np.testing.assert_allclose(
        layer.embeddings, learner.decode(learner.codes), atol=1e-6
    )


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_codebooks", 0),
        ("codebook_size", 1),
        ("hidden_units", 0),
        ("temperature", 0.0),
        ("training", 1000),
    ],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be.*Received: {name}"):
        GumbelCodeLearner(**{name: value})


def test_bad_tables():
    learner = small_learner()
    table = clustered_table()
    with pytest.raises(ValueError, match="call `train` first"):
        learner.encode(table)
    with pytest.raises(ValueError, match="call `train` first"):
        learner.decode(np.zeros((1, 4), "uint8"))
    broken = table.copy()
    broken[7, 2] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in row 7"):
        learner.train(broken)
    with pytest.raises(ValueError, match="two axes"):
        learner.train(table[0])
    with pytest.raises(ValueError, match="`sample_weight` must hold one"):
        learner.train(table, sample_weight=np.ones(3))
    assert not learner.built
    learner.build(table.shape)
    for method in (learner.train, learner.encode):
        with pytest.raises(ValueError, match="`table` must have 8 columns"):
            method(table[:, :3])
    with pytest.raises(ValueError, match="NaN or infinity in row 7"):
        learner.encode(broken)
    with pytest.raises(ValueError, match="`codes` must be from 0 to 5"):
        learner.decode(np.full((1, 4), 6))


def test_loss_that_overflows():
    learner = small_learner(learning_rate=1e30)
    with pytest.raises(ValueError, match="Lower `learning_rate`, or scale"):
        learner.train(clustered_table())
