"""Numbers made zero in training: by the schedule, the smallest, everywhere."""

import keras
import numpy as np
import pytest
from errors import refused

from keras_compembed.compression import MagnitudePruning
from keras_compembed.compression.magnitude_pruning import PolynomialSparsity

IDS, WIDTH = 30, 4


def data(batches):
    rng = np.random.default_rng(0)
    ids = rng.integers(IDS, size=(8 * batches, 6)).astype("int32")
    return ids, ids[:, 0] % 3


def make_model(optimizer=None, **kwargs):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(IDS, WIDTH, name="words"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, name="scores"),
        ]
    )
    optimizer = optimizer or keras.optimizers.SGD(4.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False, **kwargs)
    rng = np.random.default_rng(3)
    for weight, scale in zip(model.weights, (0.05, 0.5, 0), strict=True):
        weight.assign(rng.normal(scale=scale, size=weight.shape))
    return model


def fit(model, batches, *callbacks, start=0):
    ids, labels = data(start + batches)
    model.fit(
        ids[8 * start :],
        labels[8 * start :],
        batch_size=8,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )


def table_of(model):
    return model.get_layer("words").embeddings.numpy()


def check(model, expected):
    np.testing.assert_allclose(
        table_of(model), expected[-1], rtol=1e-4, atol=1e-6
    )


class Record(keras.callbacks.Callback):
    """Keeps the table after each step."""

    def __init__(self):
        super().__init__()
        self.tables = []

    def on_train_batch_end(self, batch, logs=None):
        self.tables.append(table_of(self.model))


def reference(schedule, batches):
    """Tables after each step: plain steps of SGD, then the smallest are 0."""
    model = make_model()
    words = model.get_layer("words").embeddings
    kept = np.ones((IDS, WIDTH), bool)
    begin, end = schedule.begin_step, schedule.end_step
    first, final = schedule.initial_sparsity, schedule.final_sparsity
    ids, labels = data(batches)
    tables = []
    for step in range(batches + 1):
        if step:
            part = slice(8 * step - 8, 8 * step)
            model.train_on_batch(ids[part], labels[part])
        values = words.numpy()
        is_due = (step - begin) % schedule.frequency == 0 or step == end
        if is_due and begin <= step <= end:
            left = (1 - (step - begin) / (end - begin)) ** schedule.power
            sparsity = final + (first - final) * left
            number = max(1, round(values.size * (1 - sparsity)))
            kept = np.abs(values) >= np.sort(np.abs(values).ravel())[-number]
        words.assign(values * kept)
        tables.append(words.numpy())
    return tables[1:]


SCHEDULE = {
    "final_sparsity": 0.9,
    "end_step": 11,
    "begin_step": 2,
    "frequency": 4,
    "initial_sparsity": 0.3,
}


@pytest.fixture(scope="module")
def expected():
    return reference(PolynomialSparsity(**SCHEDULE), 14)


def test_every_step_is_that_of_the_reference(expected):
    model, record = make_model(), Record()
    fit(model, 14, MagnitudePruning(**SCHEDULE), record)
    for table, same in zip(record.tables, expected, strict=True):
        np.testing.assert_array_equal(table == 0, same == 0)
        np.testing.assert_allclose(table, same, rtol=1e-5, atol=1e-7)
    assert np.mean(table_of(model) == 0) == 0.9
    # Zeros may come back.
    assert any(
        ((before == 0) & (after != 0)).any()
        for before, after in zip(expected, expected[1:], strict=False)
    )
    # Nothing is left of it: training without it fills zeros.
    assert model.get_layer("words").embeddings.constraint is None
    fit(model, 14)
    assert np.mean(table_of(model) == 0) < 0.5


def test_several_steps_at_once_and_two_devices(expected, strategy):
    with strategy.scope():
        two = make_model()
    for model in two, make_model(steps_per_execution=5):
        fit(model, 14, MagnitudePruning(**SCHEDULE))
        check(model, expected)


def test_last_step_that_a_schedule_is_due():
    schedule = PolynomialSparsity(0.9, end_step=11, begin_step=2, frequency=4)
    last = [schedule.last_due(step) for step in (1, 2, 5, 6, 10, 11, 20)]
    assert last == [None, 2, 2, 6, 10, 11, 11]


# Training that stops and goes on.


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 7:
            raise KeyboardInterrupt


def test_training_goes_on_after_a_crash(expected, tmp_path):
    """`BackupAndRestore` sets weights and steps when training begins."""

    def callbacks():
        # In either order.
        backup = keras.callbacks.BackupAndRestore(tmp_path, save_freq=8)
        return MagnitudePruning(**SCHEDULE), backup

    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), 14, *callbacks(), Stop())
    again = make_model(run_eagerly=True)
    fit(again, 6, *callbacks(), start=8)
    check(again, expected)


# Optimizers and variables of other kinds.


def test_steps_that_add_up_gradients_do_not_count():
    sgd = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    model, record = make_model(sgd), Record()
    pruning = MagnitudePruning(0.8, end_step=4, frequency=2)
    fit(model, 10, pruning, record)
    zeros = [np.mean(table == 0).round(2) for table in record.tables]
    assert zeros == [0, 0, 0, 0.7, 0.7, 0.7, 0.7, 0.8, 0.8, 0.8]


def test_scaled_losses_and_constraints():
    adam = keras.optimizers.Adam(0.01)
    scaled = keras.optimizers.LossScaleOptimizer(adam, initial_scale=2.0**8)
    model = make_model(scaled)
    table = model.get_layer("words").embeddings
    table.constraint = own = keras.constraints.MaxNorm(0.05, axis=1)
    # Another variable, too.
    names = ["words", "scores/kernel"]
    fit(model, 6, MagnitudePruning(0.5, 5, frequency=5, variables=names))
    assert (model.get_layer("scores").kernel.numpy() == 0).sum() == 6
    assert np.mean(table.numpy() == 0) == 0.5
    assert np.linalg.norm(table.numpy(), axis=1).max() < 0.0501
    assert table.constraint is own


# What is refused.


def test_models_that_are_refused():
    model = make_model(run_eagerly=True)
    fit(model, 5)
    with refused("begin_step", "step 5, with") as caught:
        fit(model, 5, MagnitudePruning(**SCHEDULE))
    assert "add 5" in str(caught.value)
    with refused("variables", "'word', found 0 times"):
        fit(model, 1, MagnitudePruning(**SCHEDULE, variables=["word"]))
    model.get_layer("words").trainable = False
    with refused("variables", "trainable=False"):
        fit(model, 1, MagnitudePruning(**SCHEDULE, variables=["words"]))
    # Averages of weights are not zero.
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    model.get_layer("words").trainable = True
    with refused("use_ema", "use_ema=True"):
        fit(model, 1, MagnitudePruning(**SCHEDULE))


def test_bad_arguments():
    arguments = {"final_sparsity": 0.9, "end_step": 10, "begin_step": 3}
    bad = {"final_sparsity": 1.0, "initial_sparsity": 0.95, "end_step": 3}
    bad |= {"begin_step": -1, "frequency": 0, "power": 0}
    for name, value in bad.items():
        with refused(name, value):
            MagnitudePruning(**{**arguments, name: value})
    with refused("variables", "words", TypeError):
        MagnitudePruning(**SCHEDULE, variables="words")
