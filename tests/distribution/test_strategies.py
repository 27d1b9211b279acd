"""Two devices learn what one learns."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed import ANTEmbedding
from keras_compembed import CodeEmbedding
from keras_compembed.anchors import Frequency
from keras_compembed.anchors import Orthogonality
from keras_compembed.anchors import Relations
from keras_compembed.compression import RecodeEmbeddings
from keras_compembed.learners import FollowingCodes
from keras_compembed.learners import GumbelCodeLearner
from keras_compembed.learners import KDCodeLearner
from keras_compembed.learners import Training
from keras_compembed.optimizers import SparseRowOptimizer
from keras_compembed.transforms import L1
from keras_compembed.transforms import Mixture
from keras_compembed.transforms import SparseRows

BATCH_SIZE = 16


def classifier(mask_zero=False):
    rng = np.random.default_rng(0)
    return keras.Sequential(
        [
            keras.Input((7,), dtype="int32"),
            CodeEmbedding(
                40,
                6,
                num_codebooks=4,
                codebook_size=8,
                codes=rng.integers(8, size=(40, 4)),
                codebooks=0.5 * rng.normal(size=(4, 8, 6)),
                mask_zero=mask_zero,
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                3, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )


def examples(rows=3 * BATCH_SIZE):
    rng = np.random.default_rng(1)
    return rng.integers(40, size=(rows, 7)), rng.integers(3, size=rows)


def fit_classifier(scope, optimizer, mask_zero):
    with scope:
        model = classifier(mask_zero)
        model.compile(
            keras.optimizers.get(optimizer),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    history = model.fit(
        *examples(), batch_size=BATCH_SIZE, epochs=2, shuffle=False, verbose=0
    )
    return model, history.history["loss"]


@pytest.mark.parametrize(
    "name, learning_rate, mask_zero",
    [("SGD", 0.5, False), ("Adam", 0.01, True)],
)
def test_code_embedding_on_two_devices(
    strategy, name, learning_rate, mask_zero
):
    optimizer = {
        "class_name": name,
        "config": {"learning_rate": learning_rate},
    }
    one, one_loss = fit_classifier(
        contextlib.nullcontext(), optimizer, mask_zero
    )
    two, two_loss = fit_classifier(strategy.scope(), optimizer, mask_zero)
    assert not two.jit_compile
    before = classifier(mask_zero).get_weights()
    assert not np.allclose(one.layers[0].codebooks, before[0], atol=1e-3)
    # Sums of 16 gradients in another order, off by a few 2**-24 of numbers of
    # size 1; Adam divides by the gradient's size, which may be 1e-3.
    np.testing.assert_allclose(one_loss, two_loss, rtol=1e-5)
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_array_equal(one.layers[0].codes, two.layers[0].codes)
    replicas = strategy.experimental_local_results(
        two.layers[0].codebooks.value
    )
    assert len(replicas) == 2
    np.testing.assert_array_equal(*replicas)


def test_save_and_load_in_a_scope(strategy, tmp_path):
    path = tmp_path / "model.keras"
    optimizer = {"class_name": "Adam", "config": {"learning_rate": 0.01}}
    model, _ = fit_classifier(strategy.scope(), optimizer, False)
    ids, labels = examples()
    expected = model.predict(ids, verbose=0)
    with strategy.scope():
        model.save(path)
        again = keras.saving.load_model(path)
    alone = keras.saving.load_model(path)
    for loaded in (again, alone):
        # Rows in batches of another size.
        np.testing.assert_allclose(
            loaded.predict(ids, verbose=0), expected, atol=1e-6
        )
        np.testing.assert_array_equal(
            loaded.layers[0].codes, model.layers[0].codes
        )
        loaded.fit(ids, labels, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        again.layers[0].codebooks, alone.layers[0].codebooks, atol=1e-5
    )


def learn(scope, learner_class=GumbelCodeLearner, **kwargs):
    table = np.random.default_rng(2).normal(size=(100, 6))
    with scope:
        learner = learner_class(
            num_codebooks=3,
            codebook_size=4,
            training=Training(8, BATCH_SIZE, 1e-2, 4, 100),
            seed=0,
            verbose=0,
            **kwargs,
        )
    return learner.train(table), table


def test_learner_on_two_devices(strategy):
    one, _ = learn(contextlib.nullcontext())
    two, table = learn(strategy.scope())
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose(
            one.history[key], two.history[key], rtol=1e-4
        )
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert (one.codes == two.codes).mean() > 0.99
    np.testing.assert_array_equal(two.encode(table), two.codes)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"composition": "linear", "estimator": "soft"},
        {"composition": "concat", "logits": "free"},
    ],
    ids=["linear", "free"],
)
def test_kd_learner_on_two_devices(strategy, kwargs):
    one, _ = learn(
        contextlib.nullcontext(), KDCodeLearner, refine=False, **kwargs
    )
    two, _ = learn(strategy.scope(), KDCodeLearner, refine=False, **kwargs)
    assert not two.jit_compile
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose(
            one.history[key], two.history[key], rtol=1e-4
        )
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert (one.codes == two.codes).mean() > 0.99
    for learner in (one, two):
        temperature = learner.temperature(learner.optimizer.iterations)
        assert learner.current_temperature() == temperature < 1


def test_noise_of_two_devices_is_that_of_one(strategy, tmp_path):
    def draw(shape):
        return strategy.experimental_local_results(
            strategy.run(tf.function(lambda: learner.gumbel_noise(shape)))
        )

    learner, table = learn(strategy.scope())
    assert not learner.jit_compile
    alone, _ = learn(contextlib.nullcontext())
    for _ in range(2):
        both = np.concatenate(draw((5, 3, 4)))
        expected = alone.gumbel_noise((10, 3, 4))
        # Logarithms, of which graphs make others in the last digit.
        np.testing.assert_allclose(both, expected, rtol=1e-5, atol=1e-6)

    learner.save(tmp_path / "learner.keras")
    loaded = keras.saving.load_model(tmp_path / "learner.keras")
    np.testing.assert_array_equal(loaded.encode(table), learner.codes)


def make_anchors(scope, optimizer, **kwargs):
    with scope:
        layer = ANTEmbedding(
            40,
            6,
            num_anchors=8,
            l1=L1(2e-3, target_nonzeros=70),
            seed=0,
            **kwargs,
        )
        model = keras.Sequential(
            [
                keras.Input((7,), dtype="int32"),
                layer,
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(
                    3, kernel_initializer=keras.initializers.GlorotUniform(0)
                ),
            ]
        )
        layer.anchors.assign(np.random.default_rng(3).normal(size=(8, 6)))
        model.compile(
            optimizer(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
    return model, layer


def fit_anchors(scope, optimizer, **kwargs):
    model, layer = make_anchors(scope, optimizer, **kwargs)
    history = model.fit(
        *examples(10 * BATCH_SIZE),
        batch_size=BATCH_SIZE,
        epochs=2,
        shuffle=False,
        verbose=0,
    )
    return layer, history.history["loss"]


@pytest.mark.parametrize(
    "storage, optimizer, kwargs",
    [
        ("dense", lambda: keras.optimizers.Adam(0.01), {}),
        (
            "lazy",
            lambda: SparseRowOptimizer(keras.optimizers.Adam(0.01)),
            {
                "anchors_initializer": Frequency(np.arange(40)),
                "relations": Relations([[0, 39], [5, 38], [1, 2]], 40),
                "negative_weight": 0.1,
                "anchors_regularizer": Orthogonality(1e-3),
            },
        ),
        (
            "lazy",
            lambda: keras.optimizers.SGD(0.5),
            {"mixture": Mixture(2, "softmax")},
        ),
        (
            SparseRows(3),
            lambda: SparseRowOptimizer(keras.optimizers.Adam(0.01)),
            {},
        ),
    ],
)
def test_anchors_on_two_devices(strategy, storage, optimizer, kwargs):
    kwargs["storage"] = storage
    one, one_loss = fit_anchors(contextlib.nullcontext(), optimizer, **kwargs)
    two, two_loss = fit_anchors(strategy.scope(), optimizer, **kwargs)
    np.testing.assert_allclose(one_loss, two_loss, rtol=1e-5)
    rows = [layer.get_transform().dense_rows() for layer in (one, two)]
    # Adam divides sums in another order by their size.
    np.testing.assert_allclose(*rows, atol=1e-5)
    np.testing.assert_array_equal(rows[0] > 1e-5, rows[1] > 1e-5)
    np.testing.assert_allclose(one.anchors, two.anchors, atol=1e-5)
    assert one.l1 == pytest.approx(two.l1) and one.l1 != np.float32(2e-3)
    assert 0 < one.nnz < 0.9 * 40 * 8
    for weight in two.weights:
        replicas = strategy.experimental_local_results(weight.value)
        assert len(replicas) == 2
        np.testing.assert_array_equal(*replicas)
    if "mixture" not in kwargs:
        check_sparsified(strategy, two)


def check_sparsified(strategy, layer):
    kept = layer.get_transform().keep_largest(70)
    with strategy.scope():
        layer.sparsify()
    np.testing.assert_array_equal(
        layer.get_transform().dense_rows(), kept.dense_rows()
    )
    expected = kept.dense_rows() @ layer.anchors.numpy()
    np.testing.assert_allclose(layer.embeddings, expected, atol=1e-6)


def loop_anchors(strategy, optimizer, apart, **kwargs):
    """What `fit_anchors` does, by a loop of `strategy.run`."""
    model, layer = make_anchors(strategy.scope(), optimizer, **kwargs)
    variables = model.trainable_variables
    with strategy.scope():
        model.optimizer.build(variables)

    def take(ids, labels):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(
                labels, model(ids, training=True), from_logits=True
            )
            loss = tf.reduce_sum(losses) / BATCH_SIZE
        return tape.gradient(loss, variables)

    def apply(gradients):
        model.optimizer.apply(gradients, variables)

    if apart:
        take, apply = tf.function(take), tf.function(apply)

        def step(*batch):
            strategy.run(apply, args=(strategy.run(take, args=batch),))
    else:

        @tf.function
        def step(*batch):
            strategy.run(lambda *part: apply(take(*part)), args=batch)

    def parts(values):
        size = BATCH_SIZE // strategy.num_replicas_in_sync
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                values[context.replica_id_in_sync_group * size :][:size]
            )
        )

    for _ in range(2):
        ids, labels = examples(10 * BATCH_SIZE)
        for start in range(0, len(ids), BATCH_SIZE):
            batch = slice(start, start + BATCH_SIZE)
            step(parts(ids[batch]), parts(labels[batch]))
    return layer


@functools.cache
def fitted_on_one_device(storage, optimizer):
    layer, _ = fit_anchors(contextlib.nullcontext(), optimizer, storage=storage)
    return layer


def adam():
    return keras.optimizers.Adam(0.01)


def adam_of_rows():
    return SparseRowOptimizer(adam())


@pytest.mark.parametrize(
    "storage, optimizer, apart",
    [
        ("dense", adam, True),
        ("lazy", adam_of_rows, False),
        ("lazy", adam_of_rows, True),
        ("sparse", adam_of_rows, True),
    ],
)
def test_own_loop_on_two_devices(strategy, storage, optimizer, apart):
    one = fitted_on_one_device(storage, optimizer)
    two = loop_anchors(strategy, optimizer, apart, storage=storage)
    transforms = [layer.get_transform().dense_rows() for layer in (one, two)]
    # Adam divides sums in another order by their size.
    np.testing.assert_allclose(*transforms, atol=1e-5)
    np.testing.assert_allclose(one.anchors, two.anchors, atol=1e-5)
    assert one.l1 == pytest.approx(two.l1) and one.l1 != np.float32(2e-3)
    assert 0 < one.nnz < 0.9 * 40 * 8


@pytest.mark.parametrize("storage", ["dense", "lazy"])
def test_tied_anchors_on_two_devices(strategy, storage):
    losses = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            layer = ANTEmbedding(
                40, 6, num_anchors=8, softmax_rows=10, storage=storage, seed=0
            )
            inputs = keras.Input((7,), dtype="int32")
            model = keras.Model(inputs, layer(layer(inputs), reverse=True))
            layer.anchors.assign(np.random.default_rng(3).normal(size=(8, 6)))
            model.compile(
                SparseRowOptimizer(keras.optimizers.Adam(0.02)),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=False,
            )
        ids, _ = examples()
        history = model.fit(
            ids, ids, batch_size=BATCH_SIZE, epochs=3, shuffle=False, verbose=0
        )
        losses.append(history.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_recoding_on_two_devices(strategy):
    steps, layers = [], []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        rng = np.random.default_rng(0)
        with scope:
            model = classifier()
            layer = CodeEmbedding(
                40,
                6,
                num_codebooks=4,
                codebook_size=8,
                codes=rng.integers(8, size=(40, 4)),
                codebooks=0.5 * rng.normal(size=(4, 8, 6)),
                learn_codes=FollowingCodes(recode_every=3),
            )
            model = keras.Sequential(
                [model.inputs[0], layer, *model.layers[1:]]
            )
            model.compile(
                keras.optimizers.SGD(3.0),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            )
        recoded = []
        layer.recode = counted(layer.recode, model, recoded)
        model.fit(
            *examples(10 * BATCH_SIZE),
            batch_size=BATCH_SIZE,
            shuffle=False,
            callbacks=[RecodeEmbeddings()],
            verbose=0,
        )
        steps.append(recoded)
        layers.append(layer)
    one, two = layers
    assert steps[0] == steps[1] == [3, 6, 9]
    first = np.random.default_rng(0).integers(8, size=(40, 4))
    assert (one.codes != first).any()
    np.testing.assert_array_equal(one.codes, two.codes)
    np.testing.assert_allclose(one.latents, two.latents, atol=1e-5)
    np.testing.assert_allclose(one.codebooks, two.codebooks, atol=1e-5)
    for weight in (two.packed_codes, two.latents):
        replicas = strategy.experimental_local_results(weight.value)
        np.testing.assert_array_equal(*replicas)


def counted(recode, model, steps):
    """`recode` that notes the steps after which it is called."""

    def noting():
        steps.append(int(model.optimizer.iterations.numpy()))
        return recode()

    return noting
