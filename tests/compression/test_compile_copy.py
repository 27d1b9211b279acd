import keras
import numpy as np
import pytest

from keras_compembed.compression.compile_copy import compile_like
from keras_compembed.compression.model_copy import copy_model
from keras_compembed.optimizers.sparse_row_optimizer import SparseRowOptimizer

layers = keras.layers
# `pytest.warns` gives again what Keras warns of, as if it came from here.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
X, Y = np.arange(12).reshape(4, 3), np.arange(8.0).reshape(4, 2)


class Steps(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, first):
        self.first = first

    def __call__(self, step):
        return self.first / (keras.ops.cast(step, "float32") + 1)

    def get_config(self):
        return {"first": self.first}


class OwnSGD(keras.optimizers.SGD):
    pass


class Largest(keras.metrics.Metric):
    def __init__(self, factor=1.0, name="largest", **kwargs):
        super().__init__(name=name, **kwargs)
        self.factor = factor
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(self.factor * keras.ops.max(y_true))

    def result(self):
        return self.value


class LargestWithConfig(Largest):
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


def make_model(**kwargs):
    return keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            layers.Embedding(12, 4),
            layers.Flatten(),
            layers.Dense(2),
        ],
        **kwargs,
    )


def copy_compiled(model):
    copy, _ = copy_model(model, {})
    compile_like(copy, model)
    return copy


def check_trains_alike(model):
    """A copy of a model not trained yet comes to the same weights."""
    copy = copy_compiled(model)
    kwargs = {"epochs": 2, "shuffle": False, "batch_size": 2, "verbose": 0}
    logs = [x.fit(X, Y, **kwargs).history for x in (model, copy)]
    assert logs[0].keys() == logs[1].keys()
    for name, values in logs[0].items():
        assert values == pytest.approx(logs[1][name], rel=1e-5)
    for weight, same in zip(
        model.get_weights(), copy.get_weights(), strict=True
    ):
        np.testing.assert_allclose(weight, same, rtol=1e-5, atol=1e-6)
    return copy


@pytest.mark.parametrize(
    "optimizer, loss",
    [
        (lambda: OwnSGD(0.01, momentum=0.9), mean_error),
        (lambda: keras.optimizers.Adam(Steps(0.1)), lambda y, z: abs(z - y)),
        (lambda: SparseRowOptimizer(OwnSGD(0.01)), Scaled(3.0)),
    ],
    ids=["class", "schedule", "wrapped"],
)
def test_what_is_in_memory_is_used(optimizer, loss):
    model = make_model()
    model.compile(
        optimizer(),
        loss,
        metrics=[mean_error, LargestWithConfig(2.0), "mae"],
        weighted_metrics=[keras.metrics.MeanAbsoluteError(name="weighted")],
    )
    copy = check_trains_alike(model)
    assert copy.loss is loss
    assert copy.optimizer is not model.optimizer
    assert not {id(metric) for metric in copy.metrics} & {
        id(metric) for metric in model.metrics
    }


def test_several_outputs():
    inputs = keras.Input((3,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(12, 4)(inputs))
    outputs = {name: layers.Dense(2, name=name)(x) for name in ("b", "a")}
    model = keras.Model(inputs, outputs)
    model.compile(
        "sgd",
        {"a": mean_error, "b": Scaled(2.0)},
        loss_weights={"a": 0.5, "b": 0.1},
        metrics={"a": [LargestWithConfig(3.0)], "b": "mae"},
    )
    copy = copy_compiled(model)
    targets = {"a": Y, "b": Y}
    assert model.evaluate(X, targets, verbose=0) == pytest.approx(
        copy.evaluate(X, targets, verbose=0)
    )


def test_flags():
    model = make_model()
    model.compile(
        "sgd", "mse", run_eagerly=True, steps_per_execution=3, jit_compile=False
    )
    copy = copy_compiled(model)
    assert copy.run_eagerly and copy.steps_per_execution == 3
    assert copy.jit_compile is False


@pytest.mark.parametrize("auto_scale_loss", [True, False])
def test_auto_scale_loss(auto_scale_loss):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make_model()
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile("sgd", "mse", auto_scale_loss=auto_scale_loss)
    assert type(model.optimizer) is type(copy_compiled(model).optimizer)


def test_learning_rate_is_that_of_now():
    model = make_model()
    model.compile("sgd", "mse")
    model.optimizer.learning_rate = 0.5
    assert float(copy_compiled(model).optimizer.learning_rate) == 0.5


def test_copy_can_be_saved(tmp_path):
    model = make_model()
    model.compile("adam", "mse")
    copy_compiled(model).save(tmp_path / "copy.keras")
    assert keras.saving.load_model(tmp_path / "copy.keras").compiled


class OwnCompile(keras.Sequential):
    def compile(self, loss):
        super().compile("sgd", loss)


def left_not_compiled(model, match):
    with pytest.warns(UserWarning, match=match):
        copy = copy_compiled(model)
    assert not copy.compiled
    assert model.compiled


def test_what_cannot_be_copied_is_said():
    model = make_model()
    model.compile("sgd", "mse", metrics=[Largest(2.0)])
    left_not_compiled(model, "config of Largest does not carry `factor`=2.0")

    def decay(y_true, y_pred):
        return keras.ops.sum(model.layers[0].embeddings)

    model.compile("sgd", decay)
    left_not_compiled(model, "`loss` reads '.*' of the model itself")


def test_compile_of_a_class():
    model = OwnCompile([keras.Input((3,)), layers.Dense(2)])
    model.compile("mse")
    copy, _ = copy_model(model, {})
    assert type(copy) is OwnCompile
    with pytest.warns(UserWarning, match="a `compile` of its own"):
        compile_like(copy, model)


class CompilesItself(keras.Sequential):
    """Like a task of keras-hub."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile()

    def compile(self, optimizer="auto", **kwargs):
        optimizer = "adam" if optimizer == "auto" else optimizer
        super().compile(optimizer, loss="mse", **kwargs)


def test_what_a_constructor_compiles_is_not_taken_for_the_models_own():
    model = CompilesItself([keras.Input((3,)), layers.Dense(2)])
    model.compile("sgd")
    left_not_compiled(model, "CompilesItself has a `compile` of its own")


@pytest.mark.parametrize("wrap", [lambda x: x, SparseRowOptimizer])
def test_weights_without_decay(wrap):
    model = make_model()
    optimizer = wrap(keras.optimizers.AdamW(weight_decay=0.5))
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, "mse")
    optimizer = copy_compiled(model).optimizer
    optimizer = getattr(optimizer, "inner", optimizer)
    bias, kernel = (keras.Variable(1.0, name=x) for x in ("bias", "kernel"))
    assert not optimizer._use_weight_decay(bias)
    assert optimizer._use_weight_decay(kernel)


def test_variables_without_decay():
    model = make_model()
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_list=[model.layers[-1].bias])
    model.compile(optimizer, "mse")
    with pytest.warns(UserWarning, match="excludes variables of the model"):
        copy = copy_compiled(model)
    assert not copy.compiled
