"""Proximal training, against Algorithm 1 written down."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed import ANTEmbedding
from keras_compembed.anchors import L1
from keras_compembed.anchors import Frequency
from keras_compembed.anchors import Relations
from keras_compembed.anchors import Transform
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.sparse_rows import SparseRows
from keras_compembed.optimizers import SparseRowOptimizer

ROWS = 60
STORAGES = ("dense", "lazy", "sparse")


def examples(rows=96, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(ROWS - 5, size=(rows, 4))
    return ids, (ids % 3 == 0).sum(axis=1).astype("float32")


def make_model(
    storage,
    optimizer="sgd",
    jit_compile=None,
    **kwargs,
):
    """A model trained eagerly, unless `jit_compile` is given, and its layer."""
    keras.utils.set_random_seed(1)
    anchors = 0.5 * np.random.default_rng(2).normal(size=(6, 5))
    start = {"anchors": Given(anchors, seed=0), "l1": 2e-3}
    kwargs = {"num_anchors": 6, "transform": storage, **start} | kwargs
    layer = ANTEmbedding(ROWS, 5, **kwargs)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                1, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )
    compile_model(model, optimizer, jit_compile)
    return model, layer


def compile_model(model, optimizer, jit_compile=None):
    model.compile(
        optimizer,
        "mse",
        jit_compile=bool(jit_compile),
        run_eagerly=jit_compile is None,
    )


def fit(model, epochs=3):
    return model.fit(
        *examples(), batch_size=16, epochs=epochs, shuffle=False, verbose=0
    ).history["loss"]


class SGD:
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, name, gradient, step):
        return self.rate * gradient, self.rate


class Adam:
    """Equations of Kingma & Ba, with the epsilon of their section 2."""

    def __init__(self, rate):
        self.rate = rate
        self.m, self.v = {}, {}

    def __call__(self, name, gradient, step):
        m = 0.1 * gradient + 0.9 * self.m.get(name, 0)
        v = 0.001 * gradient**2 + 0.999 * self.v.get(name, 0)
        self.m[name], self.v[name] = m, v
        rate = self.rate * np.sqrt(1 - 0.999**step)
        size = np.where(v > 0, rate / (np.sqrt(v) + 1e-7), 0)
        return size / (1 - 0.9**step) * m, size


class LazyAdam(Adam):
    """Adam that takes rows without a gradient for rows that are not there.

    Their thresholds go on, by the mean of the row's non-zeros.
    """

    inverse = 0

    def __call__(self, name, gradient, step):
        m, v = self.m.get(name, 0), self.v.get(name, 0)
        moved, size = super().__call__(name, gradient, step)
        if name != "T":
            return moved, size
        seen = gradient.any(axis=1, keepdims=True)
        self.m[name] = np.where(seen, self.m[name], m)
        self.v[name] = np.where(seen, self.v[name], v)
        rate = self.rate * np.sqrt(1 - 0.999**step)
        self.latest = seen, size / rate
        return (
            np.where(seen, moved, 0),
            np.where(seen, size, rate * self.inverse),
        )

    def shrunk(self, transform):
        seen, inverse = self.latest
        left = transform != 0
        number = np.maximum(left.sum(axis=1, keepdims=True), 1)
        inverse = (left * inverse).sum(axis=1, keepdims=True) / number
        self.inverse = np.where(seen, inverse, self.inverse)


def algorithm_1(model, l1, update, by_coordinate, epochs=3, free=None):
    """Trains copies of the weights; returns them and the loss of each epoch."""
    layer, dense = model.layers[0], model.layers[2]
    weights = {
        "T": layer.get_transform().dense_rows(),
        "A": layer.anchors.numpy(),
        "W": dense.kernel.numpy(),
        "b": dense.bias.numpy(),
    }
    weights = {name: value.astype("float64") for name, value in weights.items()}
    ids, labels = examples()
    step, losses = 0, []
    for _ in range(epochs):
        total = 0
        for start in range(0, len(ids), 16):
            step += 1
            x, y = ids[start : start + 16], labels[start : start + 16]
            tensors = {k: tf.constant(v) for k, v in weights.items()}
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                table = tensors["T"] @ tensors["A"]
                pooled = tf.reduce_mean(tf.gather(table, x), axis=1)
                got = (pooled @ tensors["W"] + tensors["b"])[:, 0]
                loss = tf.reduce_mean(tf.square(got - y))
            total += float(loss)
            for name, gradient in tape.gradient(loss, tensors).items():
                gradient = tf.convert_to_tensor(gradient).numpy()
                moved, size = update(name, gradient, step)
                weights[name] = weights[name] - moved
                if name == "T":
                    if not by_coordinate:
                        size = update.rate
                    before = weights["T"]
                    after = np.maximum(np.abs(before) - size * l1, 0)
                    after *= np.sign(before)
                    if free is not None:
                        after = np.where(free, before, after)
                    weights["T"] = np.maximum(after, 0)
                    if isinstance(update, LazyAdam):
                        update.shrunk(weights["T"])
        losses.append(total / (len(ids) // 16))
    return weights, losses


def check_equal(model, weights, atol):
    layer = model.layers[0]
    transform = layer.get_transform().dense_rows()
    np.testing.assert_allclose(transform, weights["T"], atol=atol)
    # Zeros at the same places, but for what rounding decides.
    np.testing.assert_array_equal(transform > atol, weights["T"] > atol)
    np.testing.assert_allclose(layer.anchors, weights["A"], atol=atol)
    np.testing.assert_allclose(model.layers[2].kernel, weights["W"], atol=atol)


@pytest.mark.parametrize("storage", ["dense", "lazy"])
def test_sgd(storage):
    model, layer = make_model(
        storage, keras.optimizers.SGD(0.5), jit_compile=False, l1=5e-3
    )
    weights, losses = algorithm_1(model, 5e-3, SGD(0.5), True)
    # 18 steps with sums of float32 numbers of size 1.
    np.testing.assert_allclose(fit(model), losses, rtol=1e-5)
    check_equal(model, weights, 2e-6)
    assert 0.01 < (weights["T"] == 0).mean() < 0.99
    assert layer.nnz == np.count_nonzero(weights["T"])


@pytest.mark.parametrize(
    ("threshold", "l1"), [("coordinate", 2e-2), ("learning_rate", 0.2)]
)
@pytest.mark.parametrize("storage", ["dense", "lazy"])
def test_adam(storage, threshold, l1):
    """Lazy rows that are not looked up owe by the mean of their rates."""
    optimizer = keras.optimizers.Adam(0.01)
    update = Adam(0.01)
    if storage == "lazy":
        optimizer, update = SparseRowOptimizer(optimizer), LazyAdam(0.01)
    model, _ = make_model(storage, optimizer, l1=L1(l1, threshold=threshold))
    weights, losses = algorithm_1(model, l1, update, threshold == "coordinate")
    np.testing.assert_allclose(fit(model), losses, rtol=1e-4)
    # Where gradients are near 0, Adam makes much of their rounding.
    check_equal(model, weights, 1e-4)
    assert 0.01 < (weights["T"] == 0).mean() < 0.99


@pytest.mark.parametrize("storage", ["dense", "lazy"])
def test_free_entries(storage):
    pairs = [[0, 10], [1, 20], [2, 30], [3, 3 + 30], [0, 5], [7, 4]]
    model, layer = make_model(
        storage,
        keras.optimizers.SGD(0.5),
        anchors=Frequency(np.arange(ROWS)[::-1], seed=0),
        relations=Relations(pairs, ROWS),
        l1=5e-3,
    )
    # Anchors are the first six ids, and start as themselves.
    np.testing.assert_array_equal(
        layer.get_transform().dense_rows(0, 6), np.eye(6)
    )
    free = np.zeros((ROWS, 6), bool)
    for u, v in pairs:
        if u < 6:
            free[v, u] = True
        if v < 6:
            free[u, v] = True
    weights, _ = algorithm_1(model, 5e-3, SGD(0.5), True, free=free)
    fit(model)
    check_equal(model, weights, 2e-6)


@pytest.mark.parametrize("storage", ["lazy", "sparse"])
def test_reading_is_up_to_date_and_changes_nothing(storage):
    model, layer = make_model(storage, keras.optimizers.SGD(0.5), l1=5e-3)
    fit(model)
    stored = layer.transform.numpy()
    rows = layer.get_transform().dense_rows()
    expected = rows @ layer.anchors.numpy()
    np.testing.assert_allclose(layer.embeddings, expected, atol=1e-6)
    ids = np.arange(ROWS)
    np.testing.assert_allclose(layer(ids), expected, atol=1e-6)
    np.testing.assert_array_equal(layer.transform, stored)
    # Rows that the last batch did not look up owe something.
    assert np.count_nonzero(stored) > layer.nnz


def loop(model, *parts):
    """Trains parts of the variables, each by an optimizer of its own."""
    optimizers = [keras.optimizers.SGD(0.5) for _ in parts]
    ids, labels = examples()
    for start in range(0, len(ids), 16):
        x, y = ids[start : start + 16], labels[start : start + 16]
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)[:, 0] - y))
        gradients = [tape.gradient(loss, part) for part in parts]
        for step in zip(optimizers, gradients, parts, strict=True):
            step[0].apply(*step[1:])


@pytest.mark.parametrize("storage", STORAGES)
def test_optimizers_of_some_variables(storage):
    """Thresholds are by the rate of the one that moves T, once a step."""
    together, _ = make_model(storage, l1=5e-3)
    loop(together, together.trainable_variables)
    apart, layer = make_model(storage, l1=5e-3)
    others = [x for x in apart.trainable_variables if x is not layer.transform]
    loop(apart, [layer.transform], others)
    rows = [x.layers[0].get_transform().dense_rows() for x in (apart, together)]
    # Sums of 16 gradients in another order.
    np.testing.assert_allclose(*rows, atol=1e-5)
    assert 0.01 < (rows[0] == 0).mean() < 0.99
    for one, other in zip(
        apart.layers[2].weights, together.layers[2].weights, strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)

    frozen, layer = make_model(storage, l1=5e-3)
    layer.transform.trainable = False
    before = layer.get_transform().dense_rows()
    loop(frozen, frozen.trainable_variables)
    np.testing.assert_array_equal(layer.get_transform().dense_rows(), before)


@pytest.mark.parametrize(
    ("optimizer", "l1"),
    [
        (keras.optimizers.Adam(0.01), L1(0.01)),
        (keras.optimizers.Lion(0.003), L1(0.2, threshold="learning_rate")),
    ],
)
def test_places_that_grow_are_above_zero_after_their_step(optimizer, l1):
    optimizer = SparseRowOptimizer(optimizer)
    model, layer = make_model(SparseRows(3), optimizer, l1=l1)
    rng = np.random.default_rng(0)
    grown = 0
    for step in range(40):
        if step % 10 == 9:
            # As at checkpoints.
            layer.save_own_variables({})
        ids = rng.integers(ROWS, size=(16, 4))
        columns = layer.storage.columns.numpy()
        # Labels at odds with each other, so that numbers come and go.
        model.train_on_batch(ids, 3 * rng.normal(size=16))
        changed = layer.storage.columns.numpy() != columns
        grown += changed.sum()
        assert (layer.transform.numpy()[changed] > 0).all()
        assert np.isin(np.flatnonzero(changed.any(axis=1)), ids).all()
    assert grown > 10


def test_rounding_does_not_shrink_a_row_that_is_not_looked_up():
    """A gradient that is next to nothing has a nearly boundless step size."""

    def row(size):
        anchors = Given([[1, 0], [0, 1], [size, size]], seed=0)
        layer = ANTEmbedding(ROWS, 2, 3, anchors, "lazy", 2e-3)
        layer.build()
        layer.assign_transform(np.ones((ROWS, 3), "float32"))
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build([layer.transform])
        for rows in ([0, 1], *20 * [[1]]):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(layer(tf.constant(rows)))
            gradient = tape.gradient(loss, layer.transform)
            optimizer.apply([gradient], [layer.transform])
        return layer.get_transform().dense_rows()[0, :2]

    expected = row(0.0)
    assert expected.min() > 0.9
    np.testing.assert_allclose(row(1e-9), expected, rtol=0.01)


def test_sums_over_a_table_with_a_limited_gradient():
    hidden = np.random.default_rng(3).normal(size=(4, 5))
    hidden = tf.constant(hidden, "float32")

    def gradients(limit):
        _, layer = make_model(Transform("lazy", softmax_rows=limit))
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            logits = layer(hidden, reverse=True)
            loss = tf.reduce_sum(tf.nn.softmax(logits)[:, :2])
        expected = hidden @ np.asarray(layer.embeddings).T
        np.testing.assert_allclose(logits, expected, atol=1e-6)
        return tape.gradient(loss, [layer.transform, layer.anchors, hidden])

    whole, *others = gradients(None)
    whole = tf.convert_to_tensor(whole)
    for limit in (ROWS, 3):
        part, *same = gradients(limit)
        assert part.indices.shape == (limit,)
        np.testing.assert_allclose(
            part.values, tf.gather(whole, part.indices), atol=1e-7
        )
        for one, other in zip(same, others, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_not_finite():
    model, layer = make_model("dense")
    layer.transform.assign(np.full((ROWS, 6), np.nan))
    for act in (kc.strip, type(layer).get_transform):
        with pytest.raises(ValueError, match="NaN or infinity in transform"):
            act(layer)
    model, _ = make_model("dense", keras.optimizers.SGD(1e30))
    with pytest.raises(tf.errors.InvalidArgumentError, match="anchors. must"):
        fit(model, epochs=1)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_target(storage):
    model, layer = make_model(
        storage,
        keras.optimizers.Adam(0.02),
        jit_compile=False,
        l1=L1(1e-3, target_nonzeros=60),
    )
    ids, labels = examples()
    # As many epochs in one, which takes less time.
    ids, labels = np.tile(ids, (60, 1)), np.tile(labels, 60)
    model.fit(ids, labels, batch_size=16, shuffle=False, verbose=0)
    assert layer.l1 > 1e-3
    assert 30 < layer.nnz < 120
    assert kc.strip(layer).nnz <= 60
