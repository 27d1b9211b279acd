import contextlib
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

OPTIMIZERS = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
    "rmsprop": ("RMSprop", {}),
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


def steps_on_all_rows(optimizer, steps=4, **kwargs):
    variables = make_variables()
    optimizer.build(variables)
    ids = np.random.default_rng(0).permutation(ROWS)
    rows = isinstance(optimizer, kc.optimizers.SparseRowOptimizer)

    @tf.function(**kwargs)
    def take_step(table, bias, w):
        if rows:
            table, bias = sparse(table, ids), sparse(bias, ids)
        optimizer.apply([table, bias, w], variables)

    for step in range(steps):
        take_step(*gradients(step))
    return values(optimizer, variables)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_rows_as_in_keras(name):
    assert_same(
        steps_on_all_rows(kc.optimizers.SparseRowOptimizer(make(name))),
        steps_on_all_rows(make(name)),
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_some_rows(name):
    # The reference takes a step on all rows, and puts back those not seen.
    reference, optimizer = (
        make(name),
        kc.optimizers.SparseRowOptimizer(make(name)),
    )
    expected, variables = make_variables(), make_variables()
    reference.build(expected)
    optimizer.build(variables)
    for step in range(5):
        table, bias, w = gradients(step)
        seen = np.random.default_rng(step).permutation(ROWS)[:5]
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
    assert optimizer.iterations == reference.iterations == 5


def test_no_rows():
    variables = make_variables()
    optimizer = kc.optimizers.SparseRowOptimizer("adam")
    optimizer.build(variables)
    before = variables[0].numpy()
    none = sparse(tf.ones(SHAPE), np.zeros(0, "int64"))
    optimizer.apply([none], variables[:1])
    np.testing.assert_array_equal(variables[0], before)
    assert optimizer.iterations == 1


@pytest.mark.parametrize(
    "clip", [{"clipnorm": 1.0}, {"clipvalue": 0.5}, {"global_clipnorm": 1.0}]
)
def test_clipping(clip):
    assert_same(
        steps_on_all_rows(
            kc.optimizers.SparseRowOptimizer(make("momentum", **clip))
        ),
        steps_on_all_rows(make("momentum", **clip)),
    )


def test_excluded_from_weight_decay():
    plain, rows = make("adamw"), kc.optimizers.SparseRowOptimizer(make("adamw"))
    for optimizer in (plain, rows):
        optimizer.exclude_from_weight_decay(var_names=["table", "w"])
    decayed, expected = (
        steps_on_all_rows(make("adamw")),
        steps_on_all_rows(plain),
    )
    assert not np.allclose(decayed[0], expected[0], atol=1e-3)
    np.testing.assert_allclose(decayed[1], expected[1], atol=1e-6)
    assert_same(steps_on_all_rows(rows), expected)


def test_set_weights():
    optimizer = kc.optimizers.SparseRowOptimizer("adam")
    expected = steps_on_all_rows(optimizer)[3:]
    again = kc.optimizers.SparseRowOptimizer("adam")
    again.build(make_variables())
    again.set_weights(expected)
    assert_same([v.numpy() for v in again.variables], expected)
    assert again.iterations == 4


def sizes_of_tensors(function):
    return {
        tensor.shape.num_elements() or 0
        for op in function.graph.get_operations()
        for tensor in op.outputs
        if tensor.dtype != tf.resource
    }


@pytest.mark.parametrize("clip", [{}, {"global_clipnorm": 1.0}])
def test_memory_follows_the_rows(clip):
    table = keras.Variable(tf.zeros((1_000_000, 4)))
    optimizer = kc.optimizers.SparseRowOptimizer(
        keras.optimizers.AdamW(0.1, **clip)
    )
    optimizer.build([table])

    @tf.function
    def take_step(values, indices):
        gradient = tf.IndexedSlices(values, indices, (1_000_000, 4))
        optimizer.apply([gradient], [table])

    function = take_step.get_concrete_function(
        tf.TensorSpec((3, 4)), tf.TensorSpec((3,), "int32")
    )
    assert max(sizes_of_tensors(function)) <= 12


def test_memory_follows_the_rows_on_two_devices(strategy):
    with strategy.scope():
        table = keras.Variable(tf.zeros((1_000_000, 4)))
        optimizer = kc.optimizers.SparseRowOptimizer("adam")
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


def make_model(layer="embedding"):
    keras.utils.set_random_seed(0)
    if layer == "embedding":
        layer = keras.layers.Embedding(40, 6)
    else:
        layer = kc.CodeEmbedding(
            40, 6, 3, 4, composition="concat", learn_codes="softmax"
        )
    return keras.Sequential(
        [
            keras.Input((7,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )


def make_data(rows=48):
    rng = np.random.default_rng(1)
    return rng.integers(30, size=(rows, 7)), rng.integers(3, size=rows)


def compile_model(model, optimizer, **kwargs):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **kwargs)
    return model


def fit(model, epochs=2, **kwargs):
    history = model.fit(
        *make_data(),
        batch_size=16,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        **kwargs,
    )
    return history.history["loss"]


def adam(learning_rate=0.05):
    return kc.optimizers.SparseRowOptimizer(
        keras.optimizers.Adam(learning_rate)
    )


def fitted(optimizer=None, layer="embedding", **kwargs):
    model = compile_model(make_model(layer), optimizer or adam(), **kwargs)
    losses = fit(model)
    return [*model.get_weights(), *losses]


@pytest.mark.parametrize(
    "name, layer", [("Adam", "codes"), ("Nadam", "embedding")]
)
def test_two_devices_equal_one(strategy, layer, name):
    def train(scope):
        with scope:
            inner = getattr(keras.optimizers, name)(
                0.05, epsilon=1e-3, weight_decay=0.1
            )
            model = compile_model(
                make_model(layer), kc.optimizers.SparseRowOptimizer(inner)
            )
        losses = fit(model)
        return model, losses

    one, one_losses = train(contextlib.nullcontext())
    two, two_losses = train(strategy.scope())
    np.testing.assert_allclose(one_losses, two_losses, rtol=1e-5)
    for a, b in zip(
        (*one.weights, *one.optimizer.variables),
        (*two.weights, *two.optimizer.variables),
        strict=True,
    ):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-5)
        first, *others = strategy.experimental_local_results(b.value)
        for other in others:
            np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("scaled", [False, True])
def test_save_and_load(tmp_path, scaled):
    path = tmp_path / "model.keras"
    optimizer = adam()
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model = compile_model(make_model(), optimizer)
    fit(model)
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert type(loaded.optimizer) is type(optimizer)
    assert loaded.optimizer.iterations == model.optimizer.iterations == 6
    losses = fit(model)
    assert fit(loaded) == losses
    for a, b in zip(
        (*model.weights, *model.optimizer.variables),
        (*loaded.weights, *loaded.optimizer.variables),
        strict=True,
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_slots_are_saved_once(tmp_path):
    model = compile_model(make_model(), adam())
    fit(model)
    model.save(tmp_path / "model.keras")
    tables = []

    def visit(_, item):
        if getattr(item, "shape", None) == (40, 6):
            tables.append(item)

    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        with archive.open("model.weights.h5") as file:
            with h5py.File(file) as weights:
                weights.visititems(visit)
    assert len(tables) == 3


def test_config():
    optimizer = kc.optimizers.SparseRowOptimizer(
        {"class_name": "Lion", "config": {"learning_rate": 0.5}}, name="rows"
    )
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.name == "rows"
    assert isinstance(again.inner, keras.optimizers.Lion)
    assert again.learning_rate == 0.5


def test_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer = kc.optimizers.SparseRowOptimizer(
        keras.optimizers.Adam(learning_rate=schedule)
    )
    assert_same(
        steps_on_all_rows(optimizer),
        steps_on_all_rows(keras.optimizers.Adam(learning_rate=schedule)),
    )
    np.testing.assert_allclose(optimizer.learning_rate, 0.025, rtol=1e-6)
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    np.testing.assert_allclose(again.learning_rate, 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        keras.callbacks.ReduceLROnPlateau(
            "loss", factor=0.25, patience=0, min_delta=10.0
        ),
    ],
)
def test_callbacks_set_the_learning_rate(callback):
    optimizer = adam(0.05)
    fit(compile_model(make_model(), optimizer), callbacks=[callback])
    np.testing.assert_allclose(optimizer.learning_rate, 0.05 / 4, rtol=1e-6)
    assert optimizer.learning_rate is optimizer.inner.learning_rate


def test_loss_scale_around():
    scaled = keras.optimizers.LossScaleOptimizer(
        adam(), initial_scale=1024.0, dynamic_growth_steps=2
    )
    # Powers of two change exponents only.
    assert_same(fitted(scaled), fitted())
    assert scaled.dynamic_scale > 1024
    assert scaled.learning_rate is scaled.inner_optimizer.inner.learning_rate


def test_loss_scale_around_on_two_devices(strategy):
    with strategy.scope():
        optimizer = keras.optimizers.LossScaleOptimizer(adam())
        model = compile_model(make_model(), optimizer)
    losses = fit(model)
    one = compile_model(make_model(), adam())
    np.testing.assert_allclose(losses, fit(one), rtol=1e-5)


def test_mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = compile_model(make_model(), adam())
        losses = fit(model)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    optimizer = model.optimizer
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    assert isinstance(
        optimizer.inner_optimizer, kc.optimizers.SparseRowOptimizer
    )
    # float16 has 11 bits.
    np.testing.assert_allclose(losses, fitted()[-2:], rtol=2e-3)


def test_steps_per_execution():
    assert_same(fitted(steps_per_execution=3), fitted())


@pytest.mark.parametrize("layer", ["embedding", "codes"])
def test_jit_compile(layer):
    jitted = fitted(layer=layer, jit_compile=True)
    for a, b in zip(jitted, fitted(layer=layer), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_from_a_trained_optimizer():
    model = compile_model(make_model(), keras.optimizers.Adam(0.05))
    fit(model)
    momentum = model.optimizer.variables[2].numpy()
    assert momentum.any()
    optimizer = kc.optimizers.SparseRowOptimizer(model.optimizer)
    compile_model(model, optimizer)
    assert optimizer.iterations == 6
    np.testing.assert_array_equal(optimizer.variables[2], momentum)
    fit(model)
    assert optimizer.iterations == 12


@pytest.mark.parametrize(
    "inner, message",
    [
        (5, "`inner` must be a Keras optimizer.*Received: inner=5 "),
        (keras.optimizers.Adam, "must be a Keras optimizer"),
        ("adafactor", "each element.*Received: inner=Adafactor"),
        (
            lambda: keras.optimizers.Muon(),
            "each element.*Received: inner=Muon",
        ),
        (
            lambda: keras.optimizers.LossScaleOptimizer(
                keras.optimizers.Adam()
            ),
            "must not be a `LossScaleOptimizer`.*around",
        ),
        (lambda: kc.optimizers.SparseRowOptimizer("adam"), "must not wrap"),
        (
            lambda: keras.optimizers.Adam(gradient_accumulation_steps=4),
            "must not have `gradient_accumulation_steps`.*steps=4",
        ),
        (
            lambda: keras.optimizers.Adam(use_ema=True),
            "must not have `use_ema`",
        ),
        (
            lambda: keras.optimizers.Adam(loss_scale_factor=8.0),
            "must not have `loss_scale_factor`.*factor=8.0",
        ),
    ],
)
def test_refused(inner, message):
    if getattr(inner, "__name__", "") == "<lambda>":
        inner = inner()
    with pytest.raises(ValueError, match=message):
        kc.optimizers.SparseRowOptimizer(inner)


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
    with pytest.raises(ValueError, match=r"slot of shape \(3,\) for table"):
        optimizer.apply([sparse(tf.ones(SHAPE), [1])], variables)
