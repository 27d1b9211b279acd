import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed import ANTEmbedding
from keras_compembed.anchors import L1
from keras_compembed.anchors import Frequency
from keras_compembed.anchors import Relations
from keras_compembed.anchors import Transform
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.sparse_rows import SparseRows
from keras_compembed.anchors.transform import ACTIVATIONS

INPUTS = np.random.default_rng(0).integers(30, size=(4, 7))
STORAGES = ("dense", "lazy", "sparse")


def make_layer(
    storage="dense", rows=30, num_anchors=6, seed=0, mixture=None, **kwargs
):
    keras.utils.set_random_seed(seed)
    transform = Transform(storage, mixture)
    kwargs = {"num_anchors": num_anchors, "transform": transform, **kwargs}
    layer = ANTEmbedding(rows, 5, **kwargs)
    layer.build()
    return layer


def sparse_matrix(rows=30, columns=6, density=0.3, seed=1):
    rng = np.random.default_rng(seed)
    dense = rng.random((rows, columns)) * (
        rng.random((rows, columns)) < density
    )
    dense[3] = 0
    return dense.astype("float32")


def make_model(layer, optimizer="sgd"):
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse", run_eagerly=True)
    return model


@pytest.mark.parametrize("storage", STORAGES)
def test_product(storage):
    layer = make_layer(storage)
    transform = sparse_matrix()
    layer.assign_transform(transform)
    table = transform @ layer.anchors.numpy()
    np.testing.assert_allclose(layer(INPUTS), table[INPUTS], atol=1e-6)
    np.testing.assert_allclose(layer.embeddings, table, atol=1e-6)
    np.testing.assert_array_equal(layer.get_transform().dense_rows(), transform)
    assert layer.nnz == np.count_nonzero(transform)
    assert layer.density == layer.nnz / 180
    hidden = np.random.default_rng(2).normal(size=(2, 3, 5)).astype("float32")
    np.testing.assert_allclose(
        layer(hidden, reverse=True), hidden @ table.T, atol=1e-5
    )


@pytest.mark.parametrize("activation", ["softmax", "entmax"])
def test_mixtures(activation):
    layer = make_layer(
        mixture=activation,
        anchors=[Frequency(np.arange(30)), Given(np.eye(3, 5))],
        num_anchors=7,
    )
    assert layer.segments == (4, 3)
    np.testing.assert_array_equal(layer.anchors[4:], np.eye(3, 5))
    rows = tf.constant(layer.transform.numpy())
    function = ACTIVATIONS[activation]
    expected = function(rows[:, :4]) @ layer.anchors[:4]
    expected += function(rows[:, 4:]) @ layer.anchors[4:]
    np.testing.assert_allclose(layer.embeddings, expected, atol=1e-6)
    np.testing.assert_allclose(
        layer(INPUTS), np.asarray(layer.embeddings)[INPUTS], atol=1e-6
    )
    vectors = layer.embeddings
    layer = kc.strip(layer)
    np.testing.assert_allclose(layer.embeddings, vectors, atol=1e-6)
    assert layer.activation == ("softmax" if activation == "softmax" else None)


def test_strip_to_fewer():
    transform = sparse_matrix()
    target = L1(target_nonzeros=11)
    for l1, most, kept in ((1e-5, None, 0), (target, None, 11), (1e-5, 7, 7)):
        layer = make_layer(l1=l1)
        layer.assign_transform(transform if kept else np.zeros((30, 6)))
        with refused("max_nonzeros", 0):
            kc.strip(layer, 0)
        layer = kc.strip(layer, max_nonzeros=most)
        assert layer.nnz == kept
        expected = np.sort(transform, axis=None)[::-1][:kept]
        values = layer.get_transform().values
        np.testing.assert_array_equal(np.sort(values)[::-1], expected)
    assert layer(INPUTS).shape == (4, 7, 5)


def test_the_weight_of_a_file_is_that_of_the_config(tmp_path):
    path = tmp_path / "a.weights.h5"
    make_model(make_layer(l1=1e-6)).save_weights(path)
    model = make_model(make_layer(l1=3e-2))
    model.load_weights(path)
    layer = next(x for x in model.layers if isinstance(x, ANTEmbedding))
    again = ANTEmbedding.from_config(layer.get_config())
    assert layer.l1 == pytest.approx(1e-6, rel=1e-6)
    assert again.l1 == pytest.approx(1e-6, rel=1e-6)


def test_file_size_follows_the_nonzeros(tmp_path):
    sizes = []
    for nonzeros in (100, 10_000):
        layer = make_layer("lazy", rows=2000, num_anchors=50)
        transform = np.zeros((2000, 50), "float32")
        transform.flat[:nonzeros] = 1
        layer.assign_transform(transform)
        path = tmp_path / f"{nonzeros}.keras"
        make_model(layer).save(path)
        sizes.append(path.stat().st_size)
    # A float32 value, a uint8 column; 9,900 rows of 50 are 400,000 bytes.
    assert 0.9 * 9900 * 5 < sizes[1] - sizes[0] < 1.2 * 9900 * 5
    assert sizes[1] < 150_000


def test_save_after_a_broken_step(tmp_path):
    layer = make_layer()
    layer.anchors.assign(np.full((6, 5), np.inf))
    with pytest.raises(ValueError, match="NaN or infinity in anchors"):
        make_model(layer).save(tmp_path / "model.keras")


@pytest.mark.parametrize("storage", STORAGES)
def test_from_table(storage):
    rng = np.random.default_rng(0)
    table = sparse_matrix(200, 12, 0.2) @ rng.normal(size=(12, 8))
    layer = ANTEmbedding.from_table(
        table,
        num_anchors=12,
        max_nonzeros=5,
        iterations=10,
        seed=0,
        verbose=0,
        transform=storage,
        l1=L1(0.0, non_negative=False),
    )
    error = np.square(layer.embeddings - table).sum()
    assert error < 0.1 * np.square(table).sum()
    assert layer.get_transform().row_lengths.max() <= 5


def test_from_table_may_be_negative():
    """With any number for `l1`; unless an `L1` says otherwise."""
    table = np.random.default_rng(0).normal(size=(30, 6))
    for l1, signed in ((None, True), (1e-3, True), (L1(1e-3), False)):
        kwargs = {} if l1 is None else {"l1": l1}
        layer = ANTEmbedding.from_table(
            table, num_anchors=9, seed=0, verbose=0, **kwargs
        )
        assert (layer.get_transform().values < 0).any() == signed
        assert layer.l1 == pytest.approx(1e-3 if l1 else 1e-5)


def test_from_table_refuses():
    for name, arguments in {
        "mixture": {"transform": Transform(mixture="softmax")},
        "anchors": {"anchors": Frequency(np.arange(6))},
        "max_nonzeros": {"max_nonzeros": 5, "transform": SparseRows(4)},
        # Squares of these numbers are none that float32 can hold.
        "table": {"table": 1e20 * np.eye(6)},
    }.items():
        with refused(name):
            arguments = {"table": np.eye(6), **arguments}
            ANTEmbedding.from_table(num_anchors=6, verbose=0, **arguments)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("num_anchors", {"num_anchors": 31}),
        ("l1", {"l1": np.nan}),
        ("storage", {"transform": "csr"}),
        ("max_nonzeros", {"transform": SparseRows(7)}),
        (
            "target_nonzeros",
            {
                "l1": L1(target_nonzeros=9),
                "transform": Transform(mixture="sparsemax"),
            },
        ),
        ("softmax_rows", {"transform": Transform("sparse", softmax_rows=3)}),
        ("relations", {"relations": [[0, 1]]}),
        ("relations", {"relations": Relations([[0, 1]], 30)}),
        ("anchors", {"anchors": "best"}),
        ("counts", {"anchors": Frequency(np.ones(9))}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_arguments(name, kwargs):
    kwargs = {"input_dim": 30, "output_dim": 5, "num_anchors": 6} | kwargs
    with refused(name):
        ANTEmbedding(**kwargs)


def test_bad_transforms():
    layer = make_layer(SparseRows(2))
    for name, transform in (
        ("max_nonzeros", np.ones((30, 6))),
        ("transform", np.full((30, 6), np.nan)),
    ):
        with refused(name):
            layer.assign_transform(transform)
    with pytest.raises(ValueError, match="must have .* non-zeros"):
        kc.strip(make_layer()).assign_transform(np.zeros((30, 6)))


def test_settings_are_not_shared():
    storage, l1 = SparseRows(2), L1(1e-3)
    one, two = (make_layer(storage, l1=l1) for _ in range(2))
    assert one.storage is not two.storage and storage.variable is None
    one.l1 = 0.5
    assert two.l1 == np.float32(1e-3) and l1.l1 == 1e-3
    one.assign_transform(np.zeros((30, 6)))
    assert two.nnz > 0


def test_a_clone_of_fixed_rows_must_be_given_its_weights():
    layer = ANTEmbedding(30, 4, num_anchors=5)
    layer.build()
    layer = kc.strip(layer)
    again = ANTEmbedding.from_config(layer.get_config())
    for call in (again, tf.function(again)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="configuration alone"
        ):
            call(np.arange(3))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(np.arange(3)), layer(np.arange(3)))


def test_first_layer_of_a_model_without_an_input():
    """Keras then builds it in a graph."""
    layer = ANTEmbedding(30, 4, num_anchors=5, transform="sparse")
    model = keras.Sequential([layer, keras.layers.GlobalAveragePooling1D()])
    model.compile("sgd", "mse", jit_compile=False)
    ids = np.arange(30).reshape(6, 5)
    model.fit(ids, np.zeros((6, 4)), verbose=0)
    assert layer.nnz > 0


def trained_numbers(l1=None, kept=30):
    layer = make_layer(l1=l1 or L1(0.5, non_negative=False))
    transform = sparse_matrix() - 0.5 * (sparse_matrix() > 0)
    layer.assign_transform(transform if l1 is None else sparse_matrix())
    return kc.strip(layer, max_nonzeros=kept, trainable=True)


def test_numbers_are_trained_in_their_places():
    """By SGD, against the gradient of all of T in NumPy."""
    layer = trained_numbers()
    before = layer.get_transform().dense_rows()
    anchors = layer.anchors.numpy()
    ids = np.array([3, 5, 5, 8, 29, 0])
    goal = np.random.default_rng(2).normal(size=(6, 5))
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    model.compile(keras.optimizers.SGD(0.3), "mse", run_eagerly=True)
    model.fit(ids, goal, batch_size=6, verbose=0)
    gradient = np.zeros_like(before)
    left = before[ids] @ anchors - goal
    np.add.at(gradient, ids, 2 * left @ anchors.T / left.size)
    expected = before - 0.3 * gradient * (before != 0)
    np.testing.assert_allclose(
        layer.get_transform().dense_rows(), expected, atol=1e-6
    )
    assert layer.transform.shape == (30,)


def test_numbers_that_may_not_be_negative():
    layer = trained_numbers(L1(0.5))
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    ids = np.arange(30)
    goal = -20 * layer.embeddings
    model.compile(keras.optimizers.SGD(0.3), "mse", run_eagerly=True)
    model.fit(ids, goal, batch_size=30, epochs=3, verbose=0)
    values = layer.transform.numpy()
    assert (values >= 0).all() and (values == 0).any()
    transform = layer.get_transform()
    assert layer.nnz == np.count_nonzero(values) < 30
    assert transform.values.all()
    # They keep their places until they are dropped.
    layer = kc.strip(layer)
    assert layer.storage.num_nonzeros == layer.nnz
    assert not layer.storage.trainable


def test_pruned_in_steps():
    layer = make_layer("lazy", l1=0.0, mask_zero=True)
    layer.assign_transform(sparse_matrix())
    model = make_model(layer, "adafactor")
    for number in (30, 12):
        model = kc.strip(model, number, trainable=True)
        model.fit(INPUTS, np.arange(4), verbose=0)
        assert model.layers[0].storage.num_nonzeros == number
    before = model.layers[0].get_transform().values
    for trainable in (False, True):
        # Fixed numbers may be trained again.
        model = kc.strip(model, trainable=trainable)
        model.fit(INPUTS, np.arange(4), verbose=0)
        values = model.layers[0].get_transform().values
        assert trainable != np.array_equal(values, before)
