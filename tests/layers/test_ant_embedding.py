import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_config
from layer_checks import check_layer

from keras_compembed import ANTEmbedding
from keras_compembed import CodeEmbedding
from keras_compembed.anchors import Frequency
from keras_compembed.anchors import Given
from keras_compembed.anchors import KMeansPlusPlus
from keras_compembed.anchors import Mixed
from keras_compembed.anchors import Relations
from keras_compembed.transforms import L1
from keras_compembed.transforms import FixedRows
from keras_compembed.transforms import Mixture
from keras_compembed.transforms import SparseRows
from keras_compembed.transforms import SparseTransform
from keras_compembed.transforms.activations import ACTIVATIONS

INPUTS = np.random.default_rng(0).integers(30, size=(4, 7))
STORAGES = ("dense", "lazy", "sparse")


def make_layer(storage="dense", rows=30, num_anchors=6, **kwargs):
    kwargs.setdefault("seed", 0)
    layer = ANTEmbedding(
        rows, 5, num_anchors=num_anchors, storage=storage, **kwargs
    )
    layer.build()
    return layer


def sparse_matrix(rows=30, columns=6, density=0.3, seed=1):
    rng = np.random.default_rng(seed)
    dense = rng.random((rows, columns)) * (
        rng.random((rows, columns)) < density
    )
    dense[3] = 0
    return dense.astype("float32")


def make_model(layer):
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )


@pytest.mark.parametrize(
    "kwargs, frozen, statistics",
    [
        ({"storage": "dense", "mask_zero": True}, 1, ()),
        (
            {
                "storage": "lazy",
                "l1": L1(non_negative=False),
                "mixture": Mixture(2, "entmax"),
            },
            6,
            ("clock", "settled", "rate"),
        ),
    ],
    ids=["dense", "lazy"],
)
def test_layer(kwargs, frozen, statistics, tmp_path):
    check_layer(
        ANTEmbedding,
        {"input_dim": 30, "output_dim": 5, "num_anchors": 6, "seed": 0}
        | kwargs,
        INPUTS,
        (4, 7, 5),
        expected_trainable_weights=2,
        expected_non_trainable_weights=frozen,
        tmp_path=tmp_path,
        statistics=statistics,
    )


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


@pytest.mark.parametrize("activation", ["softmax", "sparsemax", "entmax"])
def test_mixtures(activation):
    layer = make_layer(
        mixture=activation,
        anchors_initializer=Mixed(
            [Frequency(np.arange(30)), Given(np.eye(4, 5))], sizes=[2, 4]
        ),
    )
    assert layer.segments == (2, 4)
    np.testing.assert_array_equal(layer.anchors[2:], np.eye(4, 5))
    rows = tf.constant(layer.transform.numpy())
    function = ACTIVATIONS[activation]
    expected = function(rows[:, :2]) @ layer.anchors[:2]
    expected += function(rows[:, 2:]) @ layer.anchors[2:]
    np.testing.assert_allclose(layer.embeddings, expected, atol=1e-6)
    np.testing.assert_allclose(
        layer(INPUTS), layer.embeddings[INPUTS], atol=1e-6
    )
    vectors = layer.embeddings
    layer.sparsify()
    np.testing.assert_allclose(layer.embeddings, vectors, atol=1e-6)
    assert layer.activation == ("softmax" if activation == "softmax" else None)


def test_sets_of_random_anchors_differ():
    layer = make_layer(mixture=Mixture(3))
    assert layer.segments == (2, 2, 2)
    anchors = layer.anchors.numpy()
    assert not np.allclose(anchors[:2], anchors[2:4])


@pytest.mark.parametrize("storage", STORAGES)
def test_sparsify(storage, tmp_path):
    layer = make_layer(storage, mask_zero=True)
    layer.assign_transform(sparse_matrix())
    model = make_model(layer)
    expected = model.predict(INPUTS, verbose=0)
    nnz = layer.nnz
    layer.sparsify()
    assert isinstance(layer.storage, FixedRows)
    assert layer.nnz == nnz
    np.testing.assert_allclose(
        model.predict(INPUTS, verbose=0), expected, atol=1e-6
    )
    names = {weight.name for weight in layer.weights}
    assert names == {"anchors", "l1", "offsets", "columns", "values"}
    assert [weight.name for weight in layer.trainable_weights] == ["anchors"]
    with pytest.raises(ValueError, match="must be called once"):
        layer.sparsify()
    check_config(layer)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(INPUTS, verbose=0), model.predict(INPUTS, verbose=0)
    )
    transform = layer.get_transform().dense_rows()
    model.compile("adam", "mse")
    model.fit(INPUTS, np.ones(4), verbose=0)
    np.testing.assert_array_equal(layer.get_transform().dense_rows(), transform)
    assert not np.array_equal(layer.anchors, loaded.layers[0].anchors)


def test_sparsify_without_nonzeros():
    layer = make_layer()
    layer.assign_transform(np.zeros((30, 6)))
    layer.sparsify()
    np.testing.assert_array_equal(layer(INPUTS), np.zeros((4, 7, 5)))
    assert layer.nnz == 0


def test_sparsify_to_the_target():
    layer = make_layer(l1=L1(target_nonzeros=11))
    transform = sparse_matrix()
    layer.assign_transform(transform)
    layer.sparsify()
    assert layer.nnz == 11
    kept = layer.get_transform().values
    assert kept.min() == np.sort(transform, axis=None)[-11]


def test_sparsify_to_fewer():
    layer = make_layer()
    layer.assign_transform(sparse_matrix())
    with pytest.raises(ValueError, match="`max_nonzeros` must be a positive"):
        layer.sparsify(0)
    layer.sparsify(max_nonzeros=7)
    assert layer.nnz == 7


@pytest.mark.parametrize("storage", STORAGES)
def test_files(storage, tmp_path):
    """Training goes on from a file as if there had been none."""
    relations = Relations([[0, 5], [1, 7]], 30)
    layer = make_layer(
        storage,
        anchors_initializer=KMeansPlusPlus(
            np.random.default_rng(0).normal(size=(30, 5)), seed=0
        ),
        l1=0.01,
        relations=relations,
    )
    model = make_model(layer)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    model.fit(INPUTS, np.arange(4.0), verbose=0, epochs=3)
    layer.l1 = 0.02
    assert layer.l1 == np.float32(0.02)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded.layers[0]
    assert again.l1 == layer.l1
    np.testing.assert_array_equal(again.anchor_ids, layer.anchor_ids)
    np.testing.assert_array_equal(again.relations.keys, relations.keys)
    np.testing.assert_array_equal(again.embeddings, layer.embeddings)
    for each in (model, loaded):
        each.fit(INPUTS[:2], np.arange(2.0), verbose=0, shuffle=False)
    np.testing.assert_allclose(again.embeddings, layer.embeddings, atol=1e-6)
    assert again.nnz == layer.nnz
    tf.saved_model.save(model, str(tmp_path / "saved_model"))
    saved = tf.saved_model.load(str(tmp_path / "saved_model"))
    serve = saved.signatures["serving_default"]
    (name,) = serve.structured_input_signature[1]
    (found,) = serve(**{name: tf.constant(INPUTS, "int32")}).values()
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    expected = model.predict(INPUTS, verbose=0)
    for each in (found, exported.serve(INPUTS)):
        np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-6)


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


def test_from_table():
    rng = np.random.default_rng(0)
    table = sparse_matrix(200, 12, 0.2) @ rng.normal(size=(12, 8))
    for storage in STORAGES:
        layer = ANTEmbedding.from_table(
            table,
            num_anchors=12,
            max_nonzeros=5,
            iterations=20,
            seed=0,
            verbose=0,
            storage=storage,
            l1=L1(0.0, non_negative=False),
        )
        error = np.square(layer.embeddings - table).sum()
        assert error < 0.1 * np.square(table).sum()
        assert layer.get_transform().row_lengths.max() <= 5
    model = make_model(layer)
    model.compile("adam", "mse")
    model.fit(INPUTS, np.ones(4), verbose=0)


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


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mixture": "softmax"}, "`mixture` must have no activation.*softmax"),
        (
            {"anchors_initializer": Frequency(np.arange(6))},
            "`anchors_initializer` must be None in `from_table`",
        ),
    ],
)
def test_from_table_refuses_what_it_would_not_heed(arguments, message):
    with pytest.raises(ValueError, match=message):
        ANTEmbedding.from_table(np.eye(6), 3, 2, verbose=0, **arguments)


@pytest.mark.parametrize("storage", STORAGES)
def test_from_table_with_few_anchors(storage):
    """By itself a row has no more numbers than there are anchors."""
    layer = ANTEmbedding.from_table(
        np.eye(6), num_anchors=3, storage=storage, seed=0, verbose=0
    )
    assert layer.get_transform().nnz <= 3 * 6


@pytest.mark.parametrize("factor", [1e20, 1e-30])
def test_from_table_refuses_numbers_beyond_squares(factor):
    with pytest.raises(ValueError, match="`table` must have numbers whose"):
        ANTEmbedding.from_table(factor * np.eye(6), num_anchors=3, verbose=0)


def test_from_table_with_too_little_room():
    with pytest.raises(ValueError, match="`max_nonzeros` must be at most the"):
        ANTEmbedding.from_table(
            np.eye(9), num_anchors=9, max_nonzeros=5, storage=SparseRows(4)
        )


def test_frequency_vocabulary():
    """Appendix D: vectors of frequent words only."""
    counts = np.arange(30)
    layer = make_layer(
        anchors_initializer=Frequency(counts), transform_initializer="zeros"
    )
    layer.sparsify()
    model = make_model(layer)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    model.fit(INPUTS, np.ones(4), verbose=0)
    expected = np.zeros((30, 5))
    expected[29:23:-1] = layer.anchors
    np.testing.assert_array_equal(layer.embeddings, expected)
    assert layer.nnz == 6


def test_low_rank():
    """Appendix D: sets of one anchor, no sparsity."""
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(30, 2)), rng.normal(size=(2, 5))
    layer = make_layer(
        num_anchors=2,
        mixture=Mixture(2),
        l1=L1(0.0, non_negative=False),
        transform_initializer="random_normal",
    )
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    model.compile(keras.optimizers.Adam(0.05), "mse")
    ids = np.tile(np.arange(30), 600)
    model.fit(ids, (left @ right)[ids], batch_size=30, shuffle=False, verbose=0)
    np.testing.assert_allclose(layer.embeddings, left @ right, atol=0.02)
    assert layer.density == 1


def test_compositional_codes():
    """Appendix D: one anchor of each set."""
    rng = np.random.default_rng(4)
    codes = rng.integers(4, size=(30, 3))
    coded = CodeEmbedding(30, 5, num_codebooks=3, codebook_size=4, codes=codes)
    coded.build()
    transform = np.eye(4)[codes].reshape(30, 12)
    layer = make_layer(num_anchors=12, mixture=Mixture(3))
    layer.assign_transform(transform)
    layer.sparsify()
    layer.anchors.assign(keras.ops.reshape(coded.codebooks, (12, 5)))
    np.testing.assert_allclose(layer.embeddings, coded.embeddings, atol=1e-6)
    models = [make_model(layer), make_model(coded)]
    models[1].layers[2].set_weights(models[0].layers[2].get_weights())
    for model in models:
        model.compile(keras.optimizers.SGD(0.5), "mse")
        model.fit(INPUTS, np.ones(4), verbose=0)
    np.testing.assert_allclose(layer.embeddings, coded.embeddings, atol=1e-5)


def test_tied_output():
    layer = ANTEmbedding(30, 5, num_anchors=6, mask_zero=True, seed=0)
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.LSTM(5, return_sequences=True)(layer(inputs))
    logits = layer(hidden, reverse=True)
    model = keras.Model(inputs, logits)
    assert logits.shape == (None, None, 30)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss)
    losses = model.fit(INPUTS, INPUTS, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_sampled_softmax():
    """Appendix C: only rows of classes drawn are looked up."""
    layer = make_layer("lazy", num_anchors=6)
    hidden = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    with tf.GradientTape() as tape:
        classes = tf.constant([3, 8, 8, 20, 1, 4])
        logits = tf.matmul(hidden, layer(classes), transpose_b=True)
        loss = tf.reduce_sum(tf.nn.softmax(logits)[:, 0])
    gradient = tape.gradient(loss, layer.transform)
    np.testing.assert_array_equal(gradient.indices, [3, 8, 20, 1, 4])


def test_masks():
    layer = make_layer(mask_zero=True)
    ids = np.array([[0, 3, 0]])
    np.testing.assert_array_equal(
        layer.compute_mask(ids), [[False, True, False]]
    )
    assert make_layer().compute_mask(ids) is None
    hidden = np.ones((1, 2, 5), "float32")
    assert layer.compute_mask(hidden, mask="kept") == "kept"


def test_default_anchors_and_seeds():
    first, second = (make_layer(seed=3) for _ in range(2))
    np.testing.assert_array_equal(
        first.get_transform().dense_rows(), second.get_transform().dense_rows()
    )
    np.testing.assert_array_equal(first.anchors, second.anchors)
    basis = first.anchors.numpy()[:5]
    np.testing.assert_allclose(basis @ basis.T, 5 * np.eye(5), atol=1e-5)
    lengths = first.get_transform().row_lengths
    assert lengths.max() == 4


@pytest.mark.parametrize("weights", ["nnz", "embeddings", "get_transform"])
def test_not_built(weights):
    layer = ANTEmbedding(30, 5, num_anchors=6)
    with pytest.raises(AttributeError, match="must build the layer"):
        value = getattr(layer, weights)
        value()


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"input_dim": 0}, "`input_dim` must be a positive integer"),
        ({"output_dim": 2.5}, "`output_dim` must be a positive integer"),
        ({"num_anchors": 0}, "`num_anchors` must be a positive integer"),
        ({"num_anchors": 31}, "`num_anchors` must be at most `input_dim`"),
        ({"l1": -1e-5}, "`l1` must be a number of at least 0"),
        ({"l1": np.nan}, "`l1` must be a number of at least 0"),
        ({"l1": "large"}, "`l1` must be a number of at least 0, or a"),
        ({"mask_zero": "yes"}, "`mask_zero` must be True or False"),
        ({"seed": -1}, "`seed` must be None or an integer of at least 0"),
        ({"seed": 0.5}, "`seed` must be None or an integer of at least 0"),
        ({"storage": "csr"}, "`storage` must be None, 'dense'"),
        ({"storage": "fixed"}, "`storage` must be None, 'dense'"),
        ({"mixture": "relu"}, "`activation` must be one of"),
        ({"mixture": 2}, "`mixture` must be None"),
        ({"negative_weight": -1}, "`negative_weight` must be a number"),
        ({"storage": SparseRows(7)}, "at most `num_anchors`"),
        (
            {"l1": L1(target_nonzeros=9), "mixture": "sparsemax"},
            "`target_nonzeros` must be None with 'sparsemax'",
        ),
        ({"softmax_rows": 0}, "`softmax_rows` must be a positive"),
        ({"softmax_rows": 3, "mixture": "entmax"}, "`softmax_rows` must"),
        ({"softmax_rows": 3, "storage": "sparse"}, "`softmax_rows` must"),
        ({"relations": [[0, 1]]}, "`relations` must be a"),
        ({"relations": Relations([[0, 1]], 9)}, "between ids below"),
        (
            {"relations": Relations([[0, 1]], 30), "mixture": Mixture(2)},
            "`relations` must be None with several sets",
        ),
        (
            {
                "relations": Relations([[0, 1]], 30),
                "anchors_initializer": ["dynamic", "dynamic"],
            },
            "`relations` must be None with several sets",
        ),
        (
            {"relations": Relations([[0, 1]], 30)},
            "`relations` must come with anchors that stand for ids",
        ),
        ({"anchors_initializer": "best"}, "`anchors_initializer` must be"),
        (
            {"anchors_initializer": Frequency(np.ones(9))},
            "`counts` must have one entry for each object",
        ),
    ],
)
def test_bad_arguments(kwargs, message):
    kwargs = {"input_dim": 30, "output_dim": 5, "num_anchors": 6} | kwargs
    with pytest.raises(ValueError, match=message):
        ANTEmbedding(**kwargs)


def test_bad_transforms():
    layer = make_layer(SparseRows(2))
    with pytest.raises(ValueError, match="must have shape"):
        layer.assign_transform(np.zeros((30, 5)))
    with pytest.raises(ValueError, match="`max_nonzeros` must be at least"):
        layer.assign_transform(np.ones((30, 6)))
    with pytest.raises(ValueError, match="`transform`"):
        layer.assign_transform(np.full((30, 6), np.nan))
    with pytest.raises(ValueError, match="`l1` must be a number"):
        layer.l1 = -1
    layer = make_layer()
    layer.sparsify()
    other = SparseTransform.from_parts([np.zeros((30, 6))], 6)
    with pytest.raises(ValueError, match="as many non-zeros"):
        layer.assign_transform(other)


def test_settings_are_not_shared():
    storage, l1 = SparseRows(2), L1(1e-3)
    one, two = (make_layer(storage, l1=l1) for _ in range(2))
    assert one.storage is not two.storage and storage.variable is None
    one.l1 = 0.5
    assert two.l1 == np.float32(1e-3) and l1.l1 == 1e-3
    one.assign_transform(np.zeros((30, 6)))
    assert two.nnz > 0


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_clone_starts_from_the_same_anchors(kind):
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    start = vectors[:5] if kind == "array" else KMeansPlusPlus(vectors, seed=0)
    layer = ANTEmbedding(
        30, 4, num_anchors=5, anchors_initializer=start, seed=0
    )
    config = json.loads(json.dumps(layer.get_config()))
    again = ANTEmbedding.from_config(config)
    ids = np.arange(30)
    np.testing.assert_array_equal(again(ids), layer(ids))


def test_a_clone_of_fixed_rows_must_be_given_its_weights():
    layer = ANTEmbedding(30, 4, num_anchors=5, seed=0)
    layer.build()
    layer.sparsify()
    again = ANTEmbedding.from_config(layer.get_config())
    for call in (again, tf.function(again)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="configuration alone"
        ):
            call(np.arange(3))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(np.arange(3)), layer(np.arange(3)))


@pytest.mark.parametrize("storage", ["dense", "lazy", "sparse"])
def test_first_layer_of_a_model_without_an_input(storage):
    """Keras then builds it in a graph."""
    layer = ANTEmbedding(30, 4, num_anchors=5, storage=storage)
    model = keras.Sequential([layer, keras.layers.GlobalAveragePooling1D()])
    model.compile("adam", "mse")
    ids = np.arange(30).reshape(6, 5)
    model.fit(ids, np.zeros((6, 4)), verbose=0)
    assert layer.nnz > 0


def trained_numbers(l1=None, kept=30):
    layer = make_layer(l1=l1 or L1(0.5, non_negative=False))
    transform = sparse_matrix() - 0.5 * (sparse_matrix() > 0)
    layer.assign_transform(transform if l1 is None else sparse_matrix())
    layer.sparsify(max_nonzeros=kept, trainable=True)
    return layer


def test_numbers_are_trained_in_their_places():
    """By SGD, against the gradient of all of T in NumPy."""
    layer = trained_numbers()
    before = layer.get_transform().dense_rows()
    anchors = layer.anchors.numpy()
    ids = np.array([3, 5, 5, 8, 29, 0])
    goal = np.random.default_rng(2).normal(size=(6, 5))
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    model.compile(keras.optimizers.SGD(0.3), "mse")
    model.fit(ids, goal, batch_size=6, verbose=0)
    gradient = np.zeros_like(before)
    left = before[ids] @ anchors - goal
    np.add.at(gradient, ids, 2 * left @ anchors.T / left.size)
    expected = before - 0.3 * gradient * (before != 0)
    np.testing.assert_allclose(
        layer.get_transform().dense_rows(), expected, atol=1e-6
    )
    assert layer.transform.shape == (30,)


def test_numbers_of_a_frozen_layer_wait():
    layer = make_layer()
    layer.trainable = False
    layer.sparsify(trainable=True)
    assert not layer.trainable_weights
    layer.trainable = True
    assert any(one is layer.transform for one in layer.trainable_weights)


def test_numbers_that_may_not_be_negative():
    layer = trained_numbers(L1(0.5))
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    ids = np.arange(30)
    goal = -20 * layer.embeddings
    model.compile(keras.optimizers.SGD(0.3), "mse")
    model.fit(ids, goal, batch_size=30, epochs=3, verbose=0)
    values = layer.transform.numpy()
    assert (values >= 0).all() and (values == 0).any()
    transform = layer.get_transform()
    assert layer.nnz == np.count_nonzero(values) < 30
    assert transform.values.all()
    # They keep their places until they are dropped.
    layer.sparsify()
    assert layer.storage.num_nonzeros == layer.nnz
    assert not layer.storage.trainable


@pytest.mark.parametrize("optimizer", ["adam", "adafactor"])
def test_pruned_in_the_midst_of_training(optimizer, tmp_path):
    layer = make_layer("lazy", l1=0.0, mask_zero=True)
    layer.assign_transform(sparse_matrix())
    model = make_model(layer)
    model.compile(optimizer, "mse")
    numbers = [30, 20, 12]
    prune = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: layer.sparsify(
            numbers[epoch], trainable=True
        )
    )
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(layer.storage.num_nonzeros)
    )
    goal = np.arange(4)
    model.fit(INPUTS, goal, epochs=3, callbacks=[prune, count], verbose=0)
    assert seen == numbers
    check_config(layer)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.layers[0].storage.trainable
    for one in (model, loaded):
        one.fit(INPUTS, goal, epochs=2, verbose=0)
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), same.numpy())
    before = layer.get_transform().values
    layer.sparsify()
    model.fit(INPUTS, goal, verbose=0)
    np.testing.assert_array_equal(layer.get_transform().values, before)
    with pytest.raises(ValueError, match="once, unless with `trainable=True`"):
        layer.sparsify()
    # Fixed numbers are trained again by an optimizer that knows of them.
    layer.sparsify(trainable=True)
    model.compile(optimizer, "mse")
    model.fit(INPUTS, goal, verbose=0)
    assert not np.array_equal(layer.get_transform().values, before)


def test_from_table_with_numbers_in_all():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 8)).astype("float32")
    counts = 1000 // np.arange(1, 201)
    layer = ANTEmbedding.from_table(
        table,
        num_anchors=12,
        max_nonzeros=8,
        total_nonzeros=500,
        sample_weight=counts,
        seed=0,
        verbose=0,
    )
    assert layer.nnz == 500
    lengths = layer.get_transform().row_lengths
    assert lengths.max() <= 8 and lengths[:20].mean() > lengths[-20:].mean()
