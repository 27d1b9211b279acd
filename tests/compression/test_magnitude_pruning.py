"""Numbers made zero in training: by the schedule, the smallest, everywhere."""

import keras
import numpy as np
import pytest
from errors import refused

from keras_compembed.compression import MagnitudePruning
from keras_compembed.compression import PolynomialSparsity

IDS, WIDTH = 30, 4


def make_model(optimizer="sgd", **kwargs):
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(
                IDS,
                WIDTH,
                embeddings_initializer=keras.initializers.RandomNormal(seed=0),
                name="words",
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                3,
                kernel_initializer=keras.initializers.GlorotUniform(0),
                name="scores",
            ),
        ]
    )
    if optimizer == "sgd":
        optimizer = keras.optimizers.SGD(4.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False, **kwargs)
    return model


def data(batches):
    rng = np.random.default_rng(0)
    ids = rng.integers(IDS, size=(8 * batches, 6)).astype("int32")
    return ids, ids[:, 0] % 3


def fit(model, batches, *callbacks, epochs=1, start=0, **kwargs):
    ids, labels = data(start + batches)
    model.fit(
        ids[8 * start :],
        labels[8 * start :],
        batch_size=8,
        shuffle=False,
        verbose=0,
        epochs=epochs,
        callbacks=list(callbacks),
        **kwargs,
    )


def table_of(model):
    return model.get_layer("words").embeddings.numpy()


def check(model, expected):
    np.testing.assert_allclose(
        table_of(model), expected[-1], rtol=1e-4, atol=1e-6
    )


class Record(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.tables = []

    def on_train_batch_end(self, batch, logs=None):
        self.tables.append(table_of(self.model))


def reference(schedule, batches):
    """Tables after each step: plain steps of SGD, then the smallest are 0."""
    model = make_model()
    words = model.get_layer("words").embeddings
    step_of = schedule.last_due
    kept = np.ones((IDS, WIDTH), bool)
    tables = []

    def prune(step):
        nonlocal kept
        values = words.numpy()
        if step_of(step) == step and (
            step <= schedule.end_step and step >= schedule.begin_step
        ):
            part = (step - schedule.begin_step) / (
                schedule.end_step - schedule.begin_step
            )
            gap = schedule.initial_sparsity - schedule.final_sparsity
            sparsity = schedule.final_sparsity
            sparsity += gap * (1 - part) ** schedule.power
            number = max(1, round(values.size * (1 - sparsity)))
            threshold = np.sort(np.abs(values).ravel())[-number]
            kept = np.abs(values) >= threshold
        words.assign(values * kept)

    prune(0)
    ids, labels = data(batches)
    for step in range(batches):
        part = slice(8 * step, 8 * step + 8)
        model.train_on_batch(ids[part], labels[part])
        prune(step + 1)
        tables.append(words.numpy())
    return tables


SCHEDULE = PolynomialSparsity(
    0.9, end_step=11, begin_step=2, frequency=4, initial_sparsity=0.3
)


@pytest.fixture(scope="module")
def expected():
    return reference(SCHEDULE, 14)


def test_schedule():
    schedule = PolynomialSparsity(0.9, end_step=11, begin_step=2, frequency=4)
    due = [step for step in range(20) if schedule.is_due(step)]
    assert due == [2, 6, 10, 11]
    last = [schedule.last_due(step) for step in (1, 2, 5, 6, 10, 11, 20)]
    assert last == [None, 2, 2, 6, 10, 11, 11]
    np.testing.assert_allclose([schedule(0), schedule(2)], 0)
    np.testing.assert_allclose(schedule(6), 0.9 * (1 - (5 / 9) ** 3), rtol=1e-6)
    np.testing.assert_allclose([schedule(11), schedule(50)], 0.9, rtol=1e-6)


def test_every_step_is_that_of_the_reference(expected):
    model, record = make_model(), Record()
    fit(model, 14, MagnitudePruning(SCHEDULE), record)
    for table, same in zip(record.tables, expected, strict=True):
        np.testing.assert_array_equal(table == 0, same == 0)
        np.testing.assert_allclose(table, same, rtol=1e-5, atol=1e-7)
    assert np.mean(table_of(model) == 0) == 0.9
    # Zeros may come back.
    was_zero = [table == 0 for table in record.tables]
    assert any(
        (before & ~after).any()
        for before, after in zip(was_zero, was_zero[1:], strict=False)
    )
    # Nothing is left of it: training without it fills zeros.
    assert model.get_layer("words").embeddings.constraint is None
    fit(model, 14)
    assert np.mean(table_of(model) == 0) < 0.5


def test_several_steps_at_once(expected):
    model = make_model(steps_per_execution=5)
    fit(model, 14, MagnitudePruning(SCHEDULE))
    check(model, expected)


def test_two_devices_equal_one(expected, strategy):
    with strategy.scope():
        model = make_model()
    fit(model, 14, MagnitudePruning(SCHEDULE))
    check(model, expected)


def test_training_goes_on_after_a_reload(expected, tmp_path):
    model = make_model(run_eagerly=True)
    # Saved within training.
    path = str(tmp_path / "model.keras")
    save = keras.callbacks.ModelCheckpoint(path)
    fit(model, 8, MagnitudePruning(SCHEDULE), save)
    again = keras.saving.load_model(tmp_path / "model.keras")
    fit(again, 6, MagnitudePruning(SCHEDULE), start=8)
    check(again, expected)


def test_training_goes_on_after_a_crash(expected, tmp_path):
    """`BackupAndRestore` sets weights and steps when training begins."""

    class Crash(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 7:
                raise RuntimeError

    def callbacks():
        # In either order.
        backup = keras.callbacks.BackupAndRestore(tmp_path, save_freq=8)
        return MagnitudePruning(SCHEDULE), backup

    with pytest.raises(RuntimeError):
        fit(make_model(run_eagerly=True), 14, *callbacks(), Crash())
    again = make_model(run_eagerly=True)
    fit(again, 6, *callbacks(), start=8)
    check(again, expected)


def test_steps_that_add_up_gradients_do_not_count():
    sgd = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    model, record = make_model(sgd), Record()
    schedule = PolynomialSparsity(0.8, end_step=4, frequency=2)
    fit(model, 10, MagnitudePruning(schedule), record)
    zeros = [np.mean(table == 0).round(2) for table in record.tables]
    assert zeros == [0, 0, 0, 0.7, 0.7, 0.7, 0.7, 0.8, 0.8, 0.8]


def test_scaled_losses_and_constraints():
    model = make_model(
        keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), initial_scale=2.0**8
        )
    )
    table = model.get_layer("words").embeddings
    table.constraint = own = keras.constraints.MaxNorm(0.05, axis=1)
    schedule = PolynomialSparsity(0.5, end_step=5, frequency=5)
    fit(model, 6, MagnitudePruning(schedule, variables=["words"]))
    assert np.mean(table.numpy() == 0) == 0.5
    assert np.linalg.norm(table.numpy(), axis=1).max() < 0.0501
    assert table.constraint is own


def test_other_variables_by_path():
    model = make_model(run_eagerly=True)
    schedule = PolynomialSparsity(0.5, end_step=2, frequency=1)
    fit(model, 3, MagnitudePruning(schedule, ["scores/kernel"]))
    assert (model.get_layer("scores").kernel.numpy() == 0).sum() == 6
    assert (table_of(model) != 0).all()


def test_second_training_after_an_interrupt(expected):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 7:
                raise KeyboardInterrupt

    model = make_model(run_eagerly=True)
    pruning = MagnitudePruning(SCHEDULE)
    with pytest.raises(KeyboardInterrupt):
        fit(model, 14, pruning, Stop())
    fit(model, 6, MagnitudePruning(SCHEDULE), start=8)
    check(model, expected)
    assert model.get_layer("words").embeddings.constraint is None


def test_schedule_in_the_past_is_refused():
    model = make_model()
    fit(model, 5)
    with refused("schedule", "5, with") as caught:
        fit(model, 5, MagnitudePruning(SCHEDULE))
    assert "add 5" in str(caught.value)
    # The graph that was there before knows nothing of it.
    fit(model, 1, MagnitudePruning(PolynomialSparsity(0.5, 6, begin_step=5)))
    assert np.mean(table_of(model) == 0) == 0.5


def test_other_names_and_models_are_refused():
    model = make_model()
    for name in ("word", "words/kernel"):
        with refused("variables", f"'{name}', which none has"):
            fit(model, 1, MagnitudePruning(SCHEDULE, [name]))
    model.get_layer("words").trainable = False
    with refused("variables", "none. Name"):
        fit(model, 1, MagnitudePruning(SCHEDULE))
    with refused("variables", "trainable=False"):
        fit(model, 1, MagnitudePruning(SCHEDULE, ["words"]))
    # Averages of weights are not zero.
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    model.get_layer("words").trainable = True
    with refused("use_ema", "use_ema=True"):
        fit(model, 1, MagnitudePruning(SCHEDULE))


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"final_sparsity": 1.0}, 1.0),
        ({"final_sparsity": -0.1}, -0.1),
        ({"initial_sparsity": 0.95}, 0.95),
        ({"end_step": 0}, 0),
        ({"begin_step": -1}, -1),
        ({"frequency": 0}, 0),
        ({"power": 0}, 0),
    ],
)
def test_bad_schedules(arguments, received):
    (name,) = arguments
    with refused(name, received):
        PolynomialSparsity(
            **{"final_sparsity": 0.9, "end_step": 10} | arguments
        )


def test_bad_arguments():
    with refused("end_step", 10):
        PolynomialSparsity(0.9, end_step=10, begin_step=10)
    assert PolynomialSparsity(0.9, 10, initial_sparsity=0.9)
    with refused("schedule", 0.9, TypeError):
        MagnitudePruning(0.9)
    with refused("variables", "words", TypeError):
        MagnitudePruning(SCHEDULE, "words")
    with refused("variables", "[]"):
        MagnitudePruning(SCHEDULE, [])
