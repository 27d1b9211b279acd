"""One call trains a table, compresses it and trains the copy."""

import keras
import numpy as np
import pytest
from compressing import NeverTrained
from compressing import codes
from errors import refused

import keras_compembed as kc

layers = keras.layers
fit_compressed = kc.compression.fit_compressed
RNG = np.random.default_rng(0)
X = RNG.integers(60, size=(48, 5))
Y = X[:, 0] % 3


def make_model(optimizer="adam", dropout=0.0, cls=keras.Sequential, **kwargs):
    """A model that is the same each time."""
    keras.utils.set_random_seed(0)
    model = cls(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(60, 8, name="words"),
            layers.Dropout(dropout),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    if optimizer is not None:
        kwargs = {"run_eagerly": True} | kwargs
        model.compile(optimizer, "sparse_categorical_crossentropy", **kwargs)
    return model


def train(model, how=None, x=X, y=Y, **kwargs):
    options = {"epochs": 5, "layers": ["words"], "verbose": 0, **kwargs}
    return fit_compressed(model, how or codes(), x, y, **options)


def check_same_weights(model, other):
    for weight, same in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(weight, same, err_msg=weight.path)


class Watch(keras.callbacks.Callback):
    """What callbacks see: the model and its learning rate of each epoch."""

    def __init__(self):
        super().__init__()
        self.models, self.rates = {}, {}

    def on_epoch_begin(self, epoch, logs=None):
        self.models[epoch] = self.model
        self.rates[epoch] = float(self.model.optimizer.learning_rate)


def test_equals_three_calls():
    options = {"batch_size": 16, "shuffle": False, "verbose": 0}
    options["sample_weight"] = RNG.uniform(size=48)
    model, other = make_model(), make_model()

    def callbacks():
        slower = keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 2)
        return {"callbacks": [slower, Watch()], **options}

    kwargs = callbacks()
    small = train(model, table_epochs=2, seed=3, **kwargs)
    other.fit(X, Y, epochs=2, **callbacks())
    logs = other.history.history
    by_hand = kc.compress_model(
        other, codes(), ["words"], seed=3, sample_inputs=X, verbose=0
    )
    by_hand.fit(X, Y, initial_epoch=2, epochs=5, **callbacks())
    check_same_weights(small, by_hand)
    # The table stays in the model.
    check_same_weights(model, other)
    history, watch = small.history, kwargs["callbacks"][1]
    assert history.epoch == list(range(5)) and set(history.history) == set(logs)
    for name, values in by_hand.history.history.items():
        assert history.history[name] == logs[name] + values
    assert list(watch.models.values()) == [model] * 2 + [small] * 3
    rates = [0.0005 / 2**epoch for epoch in range(5)]
    assert list(watch.rates.values()) == pytest.approx(rates)


def test_a_schedule_goes_on(tmp_path):
    decay = keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 1.0)
    optimizer = kc.optimizers.SparseRowOptimizer(keras.optimizers.SGD(decay))
    watch = Watch()
    # Three steps an epoch.
    options = {"batch_size": 16, "callbacks": watch, "epochs": 4}
    small = train(make_model(optimizer), **options)
    rates = [float(decay(3 * epoch)) for epoch in range(5)]
    assert list(watch.rates.values()) == pytest.approx(rates[:4])
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    assert float(loaded.optimizer.learning_rate) == pytest.approx(rates[4])


def test_the_table_ends_when_validation_gets_worse():
    found = []
    for _ in range(2):
        model = make_model(keras.optimizers.Adam(0.3), dropout=0.2)
        watch = Watch()
        # Keras takes the last half.
        options = {"validation_split": 0.5, "callbacks": [watch]}
        found.append(train(model, epochs=12, **options))
    check_same_weights(*found)
    logs = found[-1].history.history["val_loss"]
    assert list(watch.models) == list(range(12)) and len(logs) == 12
    of_table = logs[: list(watch.models.values()).index(found[-1])]
    assert 1 < len(of_table) < 6 and of_table[-1] > min(of_table)
    loss = model.evaluate(X[24:], Y[24:], verbose=0)
    assert loss == pytest.approx(min(of_table), rel=1e-4)


def test_two_devices(strategy):
    options = {"batch_size": 16, "shuffle": False, "seed": 0, "epochs": 2}
    one = train(make_model("sgd"), **options)
    with strategy.scope():
        model = make_model("sgd", run_eagerly=False)
    # The copy is made in the model's scope.
    two = train(model, **options)
    assert two.distribute_strategy is strategy
    for first, second in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(first.numpy(), second.numpy(), 1e-4, 1e-5)


def test_a_generator_and_ctrl_c():
    def interrupt(epoch, logs):
        if epoch == 3:
            raise KeyboardInterrupt

    model = make_model()
    batches = ((X[:16], Y[:16]) for _ in range(99))
    options = {"steps_per_epoch": 2, "shuffle": False, "x": batches, "y": None}
    with pytest.raises(KeyboardInterrupt):
        stop = keras.callbacks.LambdaCallback(on_epoch_end=interrupt)
        train(model, callbacks=stop, **options)
    # The table stays in the model.
    assert len(model.history.history["loss"]) == 3
    before = make_model().get_layer("words").get_weights()[0]
    assert np.any(model.get_layer("words").get_weights()[0] != before)


def test_resumes_from_backups(tmp_path):
    def cut(epoch, logs):
        # Once in each part.
        if epoch in left:
            left.remove(epoch)
            raise ConnectionError

    options = {"shuffle": False, "seed": 0}
    whole, left = train(make_model(), **options), [1, 4]
    options["callbacks"] = [
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        keras.callbacks.LambdaCallback(on_epoch_begin=cut),
    ]
    while left:
        with pytest.raises(ConnectionError):
            train(make_model(), **options)
    small = train(make_model(), **options)
    check_same_weights(small, whole)
    assert small.history.epoch == [4] and not list(tmp_path.iterdir())


class OwnCompile(keras.Sequential):
    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)


@pytest.mark.filterwarnings("ignore:The copy is not compiled")
@pytest.mark.parametrize(
    "argument, received, kwargs, made",
    [
        ("epochs", 1, {"epochs": 1}, {}),
        ("table_epochs", 5, {"table_epochs": 5}, {}),
        ("table_epochs", 0, {"table_epochs": 0}, {}),
        ("initial_epoch", 1, {"initial_epoch": 1}, {}),
        ("seed", -1, {"seed": -1}, {}),
        ("layers", "'none'", {"layers": ["none"]}, {}),
        ("model", "below 65.5 kB", {"layers": None}, {}),
        ("model", "below", {"layers": None, "how": kc.Budget(9)}, {}),
        ("model", "not compiled", {}, {"optimizer": None}),
        ("model", "own_compile", {}, {"cls": OwnCompile}),
    ],
)
def test_bad_input_before_training(argument, received, kwargs, made):
    model = make_model(**made)
    with refused(argument, received):
        train(model, **{"how": codes(learner=NeverTrained), **kwargs})
    check_same_weights(model, make_model(**made))
