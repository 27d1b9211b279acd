import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc

OPTIMIZERS = {
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
    "centered": ("RMSprop", {"centered": True, "momentum": 0.5}),
    "lion": ("Lion", {}),
    "nadam": ("Nadam", {}),
    "adamax": ("Adamax", {}),
    "ftrl": ("Ftrl", {"l1_regularization_strength": 0.01}),
}
ROWS = 12
SHAPE = ROWS, 3
# A sum of a few float32 in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def make(name, **kwargs):
    class_name, config = OPTIMIZERS[name]
    config = {"learning_rate": 0.1, **config, **kwargs}
    return getattr(keras.optimizers, class_name)(**config)


def make_variables():
    rng = np.random.default_rng(0)
    return [
        keras.Variable(rng.normal(size=shape), name=name)
        for shape, name in ((SHAPE, "table"), (ROWS, "bias"), ((2, 2), "w"))
    ]


def values(optimizer, variables):
    return [v.numpy() for v in (*variables, *optimizer.variables)]


def sparse(gradient, ids):
    """A gradient of which half comes with each of two occurrences."""
    half = tf.gather(gradient, ids) / 2
    ids = tf.constant(ids, "int64")
    return tf.IndexedSlices(
        tf.concat([half, half[::-1]], axis=0),
        tf.concat([ids, ids[::-1]], axis=0),
        tf.constant(tuple(gradient.shape), "int64"),
    )


def gradients(step):
    rng = np.random.default_rng(step + 1)
    return [
        tf.constant(rng.normal(size=shape), "float32")
        for shape in (SHAPE, ROWS, (2, 2))
    ]


def assert_same(one, two):
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)


def steps_on_all_rows(optimizer, steps=4):
    variables = make_variables()
    optimizer.build(variables)
    ids = np.random.default_rng(0).permutation(ROWS)

    @tf.function
    def take_step(table, bias, w):
        if isinstance(optimizer, kc.optimizers.SparseRowOptimizer):
            table, bias = sparse(table, ids), sparse(bias, ids)
        optimizer.apply([table, bias, w], variables)

    for step in range(steps):
        take_step(*gradients(step))
    return values(optimizer, variables)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_that_are_seen(name):
    """All of them, some, or none.

    The reference takes a step on all rows, and puts back those not seen.
    """
    reference = make(name)
    optimizer = kc.optimizers.SparseRowOptimizer(make(name))
    expected, variables = make_variables(), make_variables()
    reference.build(expected)
    optimizer.build(variables)
    for step, number in enumerate((ROWS, 5, 5, 0, ROWS, 1)):
        table, bias, w = gradients(step)
        seen = np.random.default_rng(step).permutation(ROWS)[:number]
        unseen = np.setdiff1d(np.arange(ROWS), seen)
        before = values(reference, expected)
        reference.apply([table, bias, w], expected)
        for variable, old in zip(
            (*expected, *reference.variables), before, strict=True
        ):
            if old.shape[:1] == (ROWS,):
                new = variable.numpy()
                new[unseen] = old[unseen]
                variable.assign(new)

        before = values(optimizer, variables)
        optimizer.apply([sparse(table, seen), sparse(bias, seen), w], variables)
        after = values(optimizer, variables)
        assert_same(after, values(reference, expected))
        for old, new in zip(before, after, strict=True):
            if old.shape[:1] == (ROWS,):
                np.testing.assert_array_equal(old[unseen], new[unseen])
    assert optimizer.iterations == reference.iterations == 6


@pytest.mark.apart
def test_xla_updates_the_same_rows():
    seen = np.array([7, 2, 11, 5])
    found = []
    for jit_compile in (False, True):
        optimizer = kc.optimizers.SparseRowOptimizer(
            make("adamw", global_clipnorm=1.0)
        )
        variables = make_variables()
        optimizer.build(variables)

        @tf.function(jit_compile=jit_compile)
        def take_step(table, bias, w):
            rows = sparse(table, seen), sparse(bias, seen)
            optimizer.apply([*rows, w], variables)  # noqa: B023

        for step in range(2):
            take_step(*gradients(step))
        found.append(values(optimizer, variables))
    assert_same(*found)


def test_schedule_of_the_inner_one():
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    expected = make("adamw", learning_rate=rate, clipnorm=1.0)
    optimizer = kc.optimizers.SparseRowOptimizer(
        make("adamw", learning_rate=rate, clipnorm=1.0)
    )
    assert_same(steps_on_all_rows(optimizer), steps_on_all_rows(expected))
    np.testing.assert_allclose(
        optimizer.learning_rate, expected.learning_rate, rtol=1e-6
    )
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    np.testing.assert_allclose(again.learning_rate, 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("learning_rate", 0.01),
        ("weight_decay", 0.1),
        ("global_clipnorm", 1.0),
    ],
)
def test_settings_that_change_later(setting, value):
    """Of the optimizer that a model has, and so of the one within."""
    expected = make("momentum")
    optimizer = kc.optimizers.SparseRowOptimizer(make("momentum"))
    for each in (expected, optimizer):
        setattr(each, setting, value)
    np.testing.assert_allclose(getattr(optimizer.inner, setting), value)
    assert_same(steps_on_all_rows(optimizer), steps_on_all_rows(expected))
    again = type(optimizer).from_config(optimizer.get_config())
    np.testing.assert_allclose(getattr(again, setting), value)


def test_excluded_from_weight_decay():
    plain, rows = make("adamw"), kc.optimizers.SparseRowOptimizer(make("adamw"))
    for optimizer in (plain, rows):
        optimizer.exclude_from_weight_decay(var_names=["table", "w"])
    decayed = steps_on_all_rows(make("adamw"))
    expected = steps_on_all_rows(plain)
    assert not np.allclose(decayed[0], expected[0], atol=1e-3)
    np.testing.assert_allclose(decayed[1], expected[1], atol=1e-6)
    assert_same(steps_on_all_rows(rows), expected)


def sizes_of_tensors(function):
    return {
        tensor.shape.num_elements() or 0
        for op in function.graph.get_operations()
        for tensor in op.outputs
        if tensor.dtype != tf.resource
    }


@pytest.mark.slow
def test_memory_follows_the_rows(strategy):
    with strategy.scope():
        table = keras.Variable(tf.zeros((1_000_000, 4)))
        optimizer = kc.optimizers.SparseRowOptimizer(
            keras.optimizers.AdamW(0.1, global_clipnorm=1.0)
        )
        optimizer.build([table])

    def apply(values, indices):
        gradient = tf.IndexedSlices(values, indices, (1_000_000, 4))
        optimizer.apply([gradient], [table])

    @tf.function
    def take_step(values, indices):
        strategy.run(apply, args=(values, indices))

    function = take_step.get_concrete_function(
        tf.TensorSpec((3, 4)), tf.TensorSpec((3,), "int32")
    )
    assert max(sizes_of_tensors(function)) <= 2 * 12
    take_step(tf.ones((3, 4)), tf.constant([7, 5, 7]))
    # Adam's first step, of a row that comes often as of any other.
    np.testing.assert_allclose(tf.gather(table, [5, 7]), -0.1, rtol=1e-4)
    assert np.count_nonzero(table) == 8


def make_model(optimizer):
    embedding = keras.layers.Embedding(40, 6)
    model = keras.Sequential([keras.Input((7,), dtype="int32"), embedding])
    model.compile(optimizer, "mse", run_eagerly=True)
    return model


def fit(model):
    ids = np.random.default_rng(1).integers(30, size=(48, 7))
    model.fit(ids, np.ones((48, 7, 6)), batch_size=16, epochs=2, verbose=0)


def test_scaled_losses_are_refused(tmp_path):
    """As they are where `compile` wraps the optimizer; files open."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model(kc.optimizers.SparseRowOptimizer("adam"))
        with refused("SparseRowOptimizer", "loss_scale_factor=None"):
            fit(model)
        options = {"run_eagerly": True, "auto_scale_loss": False}
        optimizer = kc.optimizers.SparseRowOptimizer("adam")
        model.compile(optimizer, "mse", **options)
        fit(model)
        model.save(tmp_path / "model.keras")
        # Keras scales again, and drops the state of any optimizer.
        with pytest.warns(UserWarning, match="Skipping variable loading"):
            loaded = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(loaded.weights[0], model.weights[0])
        loaded.compile(kc.optimizers.SparseRowOptimizer("adam"), **options)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_from_a_trained_optimizer():
    model = make_model(keras.optimizers.Adam(0.05))
    fit(model)
    momentum = model.optimizer.variables[2].numpy()
    assert momentum.any()
    optimizer = kc.optimizers.SparseRowOptimizer(model.optimizer)
    model.compile(optimizer, "mse", run_eagerly=True)
    assert optimizer.iterations == 6
    np.testing.assert_array_equal(optimizer.variables[2], momentum)
    fit(model)
    assert optimizer.iterations == 12


@pytest.mark.parametrize(
    ("inner", "received"),
    [
        (None, "inner='NoneType'"),
        ("adafactor", "inner='Adafactor'"),
        (
            keras.optimizers.Adam(gradient_accumulation_steps=4),
            "gradient_accumulation_steps=4",
        ),
        (keras.optimizers.Adam(use_ema=True), "use_ema=True"),
    ],
)
def test_refused(inner, received):
    with refused("inner", received):
        kc.optimizers.SparseRowOptimizer(inner)


def test_set_weights():
    optimizer = kc.optimizers.SparseRowOptimizer("adam", name="rows")
    expected = steps_on_all_rows(optimizer)[3:]
    again = kc.optimizers.SparseRowOptimizer.from_config(optimizer.get_config())
    again.build(make_variables())
    again.set_weights(expected)
    assert_same([v.numpy() for v in again.variables], expected)
    assert again.iterations == 4 and again.name == "rows"


class ScaleOfColumns(keras.optimizers.Optimizer):
    def build(self, variables):
        super().build(variables)
        self.scales = [
            self.add_variable(variable.shape[1:]) for variable in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        raise NotImplementedError


def test_slots_of_another_shape():
    variables = make_variables()[:1]
    optimizer = kc.optimizers.SparseRowOptimizer(ScaleOfColumns(0.1))
    optimizer.build(variables)
    with refused("inner", "shape=(3,)"):
        optimizer.apply([sparse(tf.ones(SHAPE), [1])], variables)
