"""Two devices learn what one learns.

`layers/test_every_layer.py` has the layers as they are; here is what more can
be asked of them, and what else is trained.
"""

import keras
import multi_worker
import numpy as np
import pytest
import tensorflow as tf
from children import run_python

import keras_compembed as kc
from keras_compembed.learners.task_codes import FollowingCodes

BATCH_SIZE, IDS = 16, 40


def examples(rows=3 * BATCH_SIZE):
    rng = np.random.default_rng(1)
    return rng.integers(IDS, size=(rows, 7)), rng.integers(3, size=rows)


def check_two_devices(strategy, train, rtol=1e-4, atol=1e-5):
    """Trains on one device and on two; returns the models.

    Args:
        train: Function that returns a model and a dict of what it reported,
            called with one keyword argument, `run_eagerly`.
    """
    one, expected = train(run_eagerly=True)
    with strategy.scope():
        two, found = train(run_eagerly=False)
    assert expected["loss"][-1] < expected["loss"][0]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol, err_msg=name)
    for first, second in zip(one.weights, two.weights, strict=True):
        # Adam divides sums in another order by their size.
        np.testing.assert_allclose(
            first.numpy(), second.numpy(), rtol, atol, err_msg=first.path
        )
        replicas = strategy.experimental_local_results(second.value)
        assert len(replicas) == 2
        np.testing.assert_array_equal(*replicas, err_msg=second.path)
    return one, two


def classifier(layer, optimizer, run_eagerly):
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
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=run_eagerly,
    )
    return model


def fit(model, data, epochs=2, **kwargs):
    return model.fit(
        *data,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        **kwargs,
    ).history


def adam(rate=0.01):
    return kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(rate))


def coded(recode_every=None):
    rng = np.random.default_rng(0)
    codes = rng.integers(8, size=(IDS, 4))
    if recode_every is not None:
        codes = FollowingCodes(recode_every, codes=codes)
    return kc.CodeEmbedding(
        IDS,
        6,
        num_codebooks=4,
        codebook_size=8,
        codes=codes,
        codebooks=0.5 * rng.normal(size=(4, 8, 6)),
    )


def test_files_of_a_scope(strategy, tmp_path):
    with strategy.scope():
        model = classifier(coded(), keras.optimizers.SGD(0.5), False)
    assert not model.jit_compile
    ids, labels = data = examples()
    fit(model, data)
    expected = model.predict(ids, verbose=0)
    with strategy.scope():
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        file = tmp_path / "model.tflite"
        kc.export_litert(model, file, verbose=0, quantize=None)
    np.testing.assert_allclose(
        kc.export.LiteRTModel(file).predict(ids), expected, atol=1e-6
    )
    alone = keras.saving.load_model(tmp_path / "model.keras")
    for loaded in (again, alone):
        # Rows in batches of another size.
        found = loaded(ids)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        fit(loaded, data, 1)
    np.testing.assert_allclose(
        again.layers[0].codebooks, alone.layers[0].codebooks, atol=1e-5
    )


def test_recoding(strategy):
    steps = []

    def train(run_eagerly):
        layer = coded(recode_every=3)
        model = classifier(layer, keras.optimizers.SGD(3.0), run_eagerly)
        recode = layer.learn_codes.recode

        def noting():
            steps.append(int(model.optimizer.iterations.numpy()))
            return recode()

        layer.learn_codes.recode = noting
        data = examples(10 * BATCH_SIZE)
        recoding = [kc.compression.RecodeEmbeddings()]
        return model, fit(model, data, callbacks=recoding)

    one, two = check_two_devices(strategy, train)
    assert steps == [3, 6, 9, 12, 15, 18] * 2
    assert (one.layers[0].codes != coded().codes).any()
    np.testing.assert_array_equal(one.layers[0].codes, two.layers[0].codes)


def test_anchors(strategy):
    def train(run_eagerly):
        keras.utils.set_random_seed(0)
        layer = kc.ANTEmbedding(
            IDS,
            6,
            8,
            anchors=kc.WeightSpec(
                kc.anchors.Frequency(np.arange(IDS)),
                keras.regularizers.OrthogonalRegularizer(1e-3),
            ),
            relations=kc.anchors.Relations([[0, 39], [5, 38], [1, 2]], IDS),
            transform="lazy",
            l1=kc.anchors.L1(2e-3, target_nonzeros=70, negative_weight=0.1),
        )
        layer.build()
        layer.anchors.assign(np.random.default_rng(3).normal(size=(8, 6)))
        model = classifier(layer, adam(), run_eagerly)
        return model, fit(model, examples(10 * BATCH_SIZE))

    one, two = (model.layers[0] for model in check_two_devices(strategy, train))
    rows = [layer.get_transform().dense_rows() for layer in (one, two)]
    np.testing.assert_allclose(*rows, atol=1e-5)
    np.testing.assert_array_equal(rows[0] > 1e-5, rows[1] > 1e-5)
    assert one.l1 == pytest.approx(two.l1) and one.l1 != np.float32(2e-3)
    assert 0 < one.nnz < 0.9 * IDS * 8
    kept = two.get_transform().keep_largest(70).dense_rows()
    with strategy.scope():
        two = kc.strip(two)
    np.testing.assert_array_equal(two.get_transform().dense_rows(), kept)
    expected = kept @ two.anchors.numpy()
    np.testing.assert_allclose(two.embeddings, expected, atol=1e-6)


@pytest.mark.slow
def test_mixtures_of_anchors(strategy):
    def train(run_eagerly):
        keras.utils.set_random_seed(0)
        transform = kc.anchors.Transform("lazy", "softmax", num_sets=2)
        layer = kc.ANTEmbedding(IDS, 6, 8, transform=transform)
        model = classifier(layer, adam(), run_eagerly)
        return model, fit(model, examples())

    check_two_devices(strategy, train, atol=1e-4)


def test_tied_anchors(strategy):
    def train(run_eagerly):
        keras.utils.set_random_seed(0)
        transform = kc.anchors.Transform("lazy", softmax_rows=10)
        layer = kc.ANTEmbedding(IDS, 6, 8, transform=transform)
        inputs = keras.Input((7,), dtype="int32")
        model = keras.Model(inputs, layer(layer(inputs), reverse=True))
        layer.anchors.assign(np.random.default_rng(3).normal(size=(8, 6)))
        model.compile(
            adam(0.02),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
            run_eagerly=run_eagerly,
        )
        ids, _ = examples()
        return model, fit(model, (ids, ids))

    check_two_devices(strategy, train, atol=1e-4)


LINEAR = {"composition": "linear", "estimator": "soft", "refine": False}


@pytest.mark.parametrize(
    "cls, settings",
    [
        (kc.learners.GumbelCodeLearner, {}),
        (kc.learners.KDCodeLearner, LINEAR),
    ],
)
def test_learners(strategy, cls, settings):
    table = np.random.default_rng(2).normal(size=(100, 6))

    def learn():
        learner = cls(
            num_codebooks=3,
            codebook_size=4,
            training=kc.learners.Training(8, BATCH_SIZE, 1e-2, 4, 100),
            seed=0,
            verbose=0,
            **settings,
        )
        return learner.train(table)

    one = learn()
    with strategy.scope():
        two = learn()
    assert not two.jit_compile
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose(
            one.history[key], two.history[key], rtol=1e-4
        )
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert (one.codes == two.codes).mean() > 0.99
    if cls is kc.learners.KDCodeLearner:
        for learner in (one, two):
            temperature = learner.temperature(learner.optimizer.iterations)
            assert learner.current_temperature() == temperature < 1
        return
    np.testing.assert_array_equal(two.encode(table), two.codes)
    for _ in range(2):
        both = strategy.run(tf.function(lambda: two.gumbel_noise((5, 3, 4))))
        both = np.concatenate(strategy.experimental_local_results(both))
        # Logarithms, of which graphs make others in the last digit.
        np.testing.assert_allclose(
            both, one.gumbel_noise((10, 3, 4)), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("name", ["labels", "items"])
def test_classes(strategy, name):
    x, labels = multi_worker.classes()
    # The last batch leaves one device with fewer examples.
    last = {
        "validation_data": (x[-21:], labels[-21:]),
        "validation_batch_size": BATCH_SIZE,
    }

    def train(run_eagerly):
        keras.utils.set_random_seed(0)
        model = multi_worker.softmax(name)
        model.compile(
            adam(0.02),
            kc.CANELoss("sampled" if name == "labels" else "exact"),
            metrics=[kc.ClassAccuracy(), kc.Coverage()],
            jit_compile=False,
            run_eagerly=run_eagerly,
        )
        return model, fit(
            model,
            (x[: 4 * BATCH_SIZE], labels[: 4 * BATCH_SIZE]),
            **(last if name == "labels" else {}),
        )

    check_two_devices(strategy, train, atol=1e-4)


@pytest.mark.slow
def test_a_cell_of_a_notebook_may_run_again():
    """Two strategies made one after the other, in a process of its own."""
    done = run_python("import strategies_in_a_row as s; s.main()")
    assert done.returncode == 0, done.stderr[-2000:]
    # Adam divides sums in another order by their size.
    assert float(done.stdout) < 1e-4
