"""Copies are compiled as the model is."""

import keras
import numpy as np
import pytest
from compressing import NeverTrained
from compressing import codes
from compressing import compress

import keras_compembed as kc

layers = keras.layers
# `pytest.warns` gives again what Keras warns of, as if it came from here.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
X, Y = np.arange(12).reshape(4, 3), np.arange(8.0).reshape(4, 2)


DECAY = keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 1.0)


class OwnSGD(keras.optimizers.SGD):
    pass


class Largest(keras.metrics.Metric):
    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(self.factor * keras.ops.max(y_true))

    def result(self):
        return self.value

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class Scaled(keras.losses.Loss):
    """Its config lacks the scale."""

    def __init__(self, scale=1.0, name="scaled"):
        super().__init__(name=name)
        self.scale = scale

    def call(self, y_true, y_pred):
        return self.scale * keras.ops.mean((y_true - y_pred) ** 2, axis=-1)


def mean_error(y_true, y_pred):
    return keras.ops.mean(y_pred - y_true, axis=-1)


def make_model():
    words = layers.Embedding(60, 8, name="words", trainable=False)
    dense = layers.Dense(2, bias_initializer="ones", name="dense")
    return keras.Sequential(
        [keras.Input((3,), dtype="int32"), words, layers.Flatten(), dense]
    )


def copied(model):
    """A copy, of which the model then has the rows."""
    small = compress(model)
    rows = np.asarray(small.get_layer("words").embeddings)
    model.get_layer("words").set_weights([rows])
    return small


@pytest.mark.parametrize(
    "optimizer, loss",
    [
        (keras.optimizers.Adam(DECAY), lambda y, z: abs(z - y)),
        (kc.optimizers.SparseRowOptimizer(OwnSGD(0.01)), Scaled(3.0)),
    ],
    ids=["schedule", "wrapped"],
)
def test_copy_trains_as_the_model(optimizer, loss):
    """Losses, functions and classes are used as they are in memory."""
    model = make_model()
    model.compile(
        optimizer,
        loss,
        metrics=[mean_error, Largest(2.0), "mae"],
        weighted_metrics=[keras.metrics.MeanAbsoluteError(name="weighted")],
        run_eagerly=True,
        jit_compile=False,
    )
    copy = copied(model)
    assert copy.run_eagerly and copy.jit_compile is False
    kwargs = {"epochs": 2, "shuffle": False, "batch_size": 2, "verbose": 0}
    logs = [x.fit(X, Y, **kwargs).history for x in (model, copy)]
    assert logs[0].keys() == logs[1].keys()
    for name, values in logs[0].items():
        assert values == pytest.approx(logs[1][name], rel=1e-5)
    weights = model.trainable_weights
    for weight, same in zip(weights, copy.trainable_weights, strict=True):
        np.testing.assert_allclose(weight, same, rtol=1e-5, atol=1e-6)
    assert copy.loss is loss
    assert copy.optimizer is not model.optimizer
    metrics = [{id(metric) for metric in x.metrics} for x in (model, copy)]
    assert not metrics[0] & metrics[1]


def test_several_outputs():
    inputs = keras.Input((3,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(60, 8, name="words")(inputs))
    outputs = {name: layers.Dense(2, name=name)(x) for name in ("b", "a")}
    model = keras.Model(inputs, outputs)
    model.compile(
        "sgd",
        {"a": mean_error, "b": Scaled(2.0)},
        loss_weights={"a": 0.5, "b": 0.1},
        metrics={"a": [Largest(3.0)], "b": "mae"},
        run_eagerly=True,
    )
    copy = copied(model)
    targets = {"a": Y, "b": Y}
    assert model.evaluate(X, targets, verbose=0) == pytest.approx(
        copy.evaluate(X, targets, verbose=0)
    )


def test_state_of_now_and_files(tmp_path):
    model = make_model()
    model.compile("adam", "mse", steps_per_execution=3)
    model.optimizer.learning_rate = 0.5
    copy = copied(model)
    assert float(copy.optimizer.learning_rate) == 0.5
    assert copy.steps_per_execution == 3 and copy.loss == "mse"
    copy.save(tmp_path / "copy.keras")
    assert keras.saving.load_model(tmp_path / "copy.keras").compiled


def test_weights_without_decay():
    model = make_model()
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    optimizer = kc.optimizers.SparseRowOptimizer(optimizer)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, "mse")
    copy = copied(model)
    before = copy.get_layer("dense").get_weights()
    copy.optimizer.apply(
        [keras.ops.zeros_like(x) for x in copy.trainable_variables]
    )
    kernel, bias = copy.get_layer("dense").get_weights()
    np.testing.assert_allclose(kernel, 0.95 * before[0], rtol=1e-5)
    np.testing.assert_array_equal(bias, before[1])


# What leaves a copy that is not compiled.


class OwnCompile(keras.Sequential):
    def compile(self, loss):
        super().compile("sgd", loss)


def class_with_a_compile_of_its_own():
    inputs = keras.Input((3,), dtype="int32")
    model = OwnCompile([inputs, layers.Embedding(60, 8, name="words")])
    model.compile("mse")
    return model


def metric_whose_config_lacks_a_unit():
    metric = Largest(2.0)
    metric.unit = "m"
    model = make_model()
    model.compile("sgd", "mse", metrics=[metric])
    return model


def variables_without_decay():
    model = make_model()
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_list=[model.layers[-1].bias])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize(
    "make, reason",
    [
        (metric_whose_config_lacks_a_unit, "Largest .* unit='m'"),
        (class_with_a_compile_of_its_own, "OwnCompile"),
        (variables_without_decay, "excludes variables"),
    ],
)
def test_what_cannot_be_copied_is_said(make, reason):
    model = make()
    with pytest.warns(UserWarning, match=reason):
        with pytest.raises(AssertionError):
            compress(model, codes(learner=NeverTrained))
    with pytest.warns(UserWarning, match="Call `compile`"):
        copy = compress(model)
    assert not copy.compiled and model.compiled
    assert type(copy) is type(model)
