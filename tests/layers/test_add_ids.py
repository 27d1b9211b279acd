"""Layers whose vocabulary grows."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.transforms import SparseRows
from keras_compembed.transforms.sparse_coding import sparse_code

ROWS, NEW, WIDTH = 120, 7, 8
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(ROWS, WIDTH)).astype("float32")
VECTORS = RNG.normal(size=(NEW, WIDTH)).astype("float32")
VECTORS /= np.abs(VECTORS).max()
IDS = RNG.integers(ROWS, size=(8, 5)).astype("int32")
MORE = RNG.integers(ROWS + NEW, size=(8, 5)).astype("int32")
MORE[0, 0] = ROWS + NEW - 1
TARGETS = RNG.normal(size=(8, 3)).astype("float32")


def codes(cls=kc.CodeEmbedding, **kwargs):
    def make():
        rng = np.random.default_rng(1)
        layer = cls(
            ROWS, WIDTH, 4, 8, codes=rng.integers(8, size=(ROWS, 4)), **kwargs
        )
        layer.codebooks.assign(rng.normal(size=layer.codebooks.shape))
        return layer

    return make


def anchors(cls=kc.ANTEmbedding, **kwargs):
    def make():
        return cls.from_table(
            TABLE, 12, 3, seed=0, iterations=1, verbose=0, **kwargs
        )

    return make


def sparsified(trainable=False):
    layer = anchors(storage="dense")()
    layer.sparsify(trainable=trainable)
    return layer


def rounded(cls=kc.QuantizedEmbedding, **kwargs):
    def make():
        return cls.from_table(TABLE, seed=0, verbose=0, **kwargs)

    return make


LAYERS = {
    "codes": codes(),
    "codes-concat": codes(composition="concat"),
    "codes-linear": codes(composition="linear"),
    "codes-pooled": codes(kc.CodeEmbedReduce),
    "codes-follow": codes(learn_codes="follow"),
    "anchors-fixed": sparsified,
    "anchors-trained-places": lambda: sparsified(trainable=True),
    "anchors-dense": anchors(storage="dense"),
    "anchors-lazy": anchors(storage="lazy"),
    "anchors-sparse": anchors(storage=SparseRows(4)),
    "anchors-pooled": anchors(kc.ANTEmbedReduce, storage="lazy"),
    "int4": rounded(bits=4),
    "int2-blocks": rounded(bits=2, block_size=4),
    "int4-rank": rounded(bits=4, rank=3),
    "int4-rank-learned": rounded(bits=4, rank=3, learn_rows=True),
    "int8-pooled": rounded(kc.QuantizedEmbedReduce, bits=8),
}
EXPORTED = "codes", "anchors-fixed", "int4-rank"
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adagrad(0.01)
    ),
    "sparse": lambda: kc.optimizers.SparseRowOptimizer(
        keras.optimizers.Adam(0.01)
    ),
    "averaging": lambda: keras.optimizers.Adam(0.01, use_ema=True),
}


def build(make, optimizer="adam", run_eagerly=True):
    keras.utils.set_random_seed(0)
    layer = make()
    parts = [keras.Input((5,), dtype="int32"), layer]
    if not hasattr(layer, "combiner"):
        parts.append(keras.layers.GlobalAveragePooling1D())
    model = keras.Sequential([*parts, keras.layers.Dense(3)])
    model.compile(
        OPTIMIZERS[optimizer](),
        "mse",
        jit_compile=False,
        run_eagerly=run_eagerly,
    )
    fit(model, IDS)
    return model, layer


def fit(model, ids):
    model.fit(ids, TARGETS, batch_size=4, shuffle=False, verbose=0)


def check_grown(model, layer, path):
    """Adds ids to a layer of a trained model, which goes on with them."""
    before = np.asarray(layer.embeddings)
    names = [(x.path, x.dtype) for x in model.variables]
    slots = [(x.path, x.numpy()) for x in model.optimizer.variables]
    assert layer.add_ids(VECTORS) == range(ROWS, ROWS + NEW)
    assert layer.input_dim == layer.get_config()["input_dim"] == ROWS + NEW
    table = np.asarray(layer.embeddings)
    assert table.shape == (ROWS + NEW, WIDTH)
    np.testing.assert_array_equal(table[:ROWS], before)
    assert [(x.path, x.dtype) for x in model.variables] == names
    for slot, (name, old) in zip(model.optimizer.variables, slots, strict=True):
        assert slot.path == name
        kept = slot.numpy()[: len(old)] if old.ndim else slot.numpy()
        np.testing.assert_array_equal(kept, old, name)
    outputs = model.predict(MORE, verbose=0)
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded.predict(MORE, verbose=0), outputs)
    loaded.run_eagerly = model.run_eagerly
    for each in (model, loaded):
        fit(each, MORE)
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_allclose(
            weight.numpy(), same.numpy(), 1e-4, 1e-5, err_msg=weight.path
        )
    return table


@pytest.mark.parametrize("name", LAYERS)
def test_models_go_on(name, tmp_path):
    model, layer = build(LAYERS[name], run_eagerly=name != "codes-follow")
    model.predict(IDS, verbose=0)
    table = check_grown(model, layer, tmp_path / "model.keras")
    moved = not np.array_equal(
        np.asarray(layer.embeddings)[ROWS:], table[ROWS:]
    )
    assert moved == bool(layer.trainable_weights)
    if name in EXPORTED:
        path = tmp_path / "a.tflite"
        export = kc.export.export_litert(model, path, verbose=0)
        assert export.max_error < 1e-4


@pytest.mark.parametrize(
    "name, optimizer",
    [
        ("codes-follow", "averaging"),
        ("codes-follow", "scaled"),
        ("anchors-lazy", "sparse"),
        ("anchors-sparse", "scaled"),
        ("int4-rank-learned", "sparse"),
    ],
)
def test_optimizers_go_on(name, optimizer, tmp_path):
    model, layer = build(LAYERS[name], optimizer)
    check_grown(model, layer, tmp_path / "model.keras")


@pytest.mark.parametrize("name", ["codes-follow", "anchors-sparse"])
def test_two_devices(name, strategy):
    with strategy.scope():
        model, layer = build(LAYERS[name], run_eagerly=False)
    one, same = build(LAYERS[name])
    for each in (layer, same):
        each.add_ids(VECTORS)
    np.testing.assert_allclose(layer.embeddings, same.embeddings, 1e-4, 1e-5)
    for each in (model, one):
        fit(each, MORE)
    np.testing.assert_allclose(layer.embeddings, same.embeddings, 1e-3, 1e-4)


def test_exports_and_checkpoints(tmp_path):
    model, layer = build(LAYERS["codes-follow"])
    layer.recode()
    layer.add_ids(VECTORS)
    outputs = model.predict(MORE, verbose=0)
    model.export(tmp_path / "saved_model", verbose=False)
    exported = tf.saved_model.load(tmp_path / "saved_model")
    np.testing.assert_allclose(exported.serve(MORE), outputs, atol=1e-5)
    path = tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    layer.packed_codes.assign(tf.zeros_like(layer.packed_codes))
    tf.train.Checkpoint(model=model).restore(path).expect_partial()
    np.testing.assert_array_equal(model.predict(MORE, verbose=0), outputs)
    layer.freeze_codes()
    np.testing.assert_array_equal(model.predict(MORE, verbose=0), outputs)


def test_codes_are_the_nearest():
    """By all codes that there are."""
    rng = np.random.default_rng(0)
    codebooks = rng.normal(size=(3, 4, WIDTH)).astype("float32")
    layer = kc.CodeEmbedding(5, WIDTH, 3, 4, codebooks=codebooks, seed=0)
    layer.add_ids(VECTORS)
    every = np.array(list(itertools.product(range(4), repeat=3)))
    rows = sum(codebooks[m][every[:, m]] for m in range(3))
    distances = np.square(VECTORS[:, None] - rows).sum(axis=2)
    np.testing.assert_array_equal(layer.codes[5:], every[distances.argmin(1)])


def test_rows_of_anchors_are_a_pursuit():
    layer = anchors(storage="dense")()
    layer.add_ids(VECTORS, max_nonzeros=2)
    expected = sparse_code(VECTORS, layer.anchors.numpy(), 2, False)
    np.testing.assert_allclose(
        layer.get_transform().dense_rows(ROWS), expected.dense_rows(), atol=1e-6
    )


@pytest.mark.parametrize("rank", [None, 3])
def test_rounded_rows_are_the_nearest(rank):
    """For scales next to those found, no other integer is nearer."""
    layer = rounded(bits=2, rank=rank)()
    layer.add_ids(VECTORS)
    table = layer.rounded_table()
    unit = float(table.unit)
    wanted = np.eye(WIDTH) if rank is None else layer.projection.numpy()
    for row, vector in zip(range(ROWS, ROWS + NEW), VECTORS, strict=True):
        scale = int(table.scales[row, 0])
        if not scale:
            continue
        integers = table.integers[row].astype(float)
        error = np.square(integers * scale * unit @ wanted - vector).sum()
        for column, other in itertools.product(
            range(len(integers)), range(-2, 2)
        ):
            changed = integers.copy()
            changed[column] = other
            changed = np.square(changed * scale * unit @ wanted - vector).sum()
            # A search one by one ends a little before, with a projection.
            assert error <= changed * (1 + 1e-5) + (0.05 if rank else 0)


def test_logits_get_wider():
    layer = codes(kc.ReversibleCodeEmbedding, tie_weights=False)()
    vectors = layer(IDS[0])
    before = layer(vectors, reverse=True)
    layer.add_ids(VECTORS, reverse_vectors=-VECTORS)
    after = layer(vectors, reverse=True)
    assert after.shape == (5, ROWS + NEW)
    np.testing.assert_allclose(after[:, :ROWS], before, rtol=1e-5, atol=1e-5)
    assert layer.top_k(vectors, 3)[1].shape == (5, 3)
    assert layer.reverse_embedding.input_dim == ROWS + NEW
    again = type(layer).from_config(layer.get_config())
    again.build()
    assert again.reverse_embedding.packed_codes.shape[0] == ROWS + NEW


def test_bytes_of_a_file(tmp_path):
    """1,000 words at 32 x 16 are 16,000 bytes."""
    layer = kc.CodeEmbedding(500, WIDTH, 32, 16, seed=0)
    model = keras.Sequential([keras.Input((5,), dtype="int32"), layer])
    sizes = []
    for vectors in (None, np.zeros((1000, WIDTH))):
        if vectors is not None:
            layer.add_ids(vectors)
        model.save(tmp_path / "model.keras")
        sizes.append((tmp_path / "model.keras").stat().st_size)
    # Numbers in the config have one digit more.
    assert 16_000 <= sizes[1] - sizes[0] <= 16_010


def test_frequent_anchors_are_saved(tmp_path):
    layer = kc.ANTEmbedding(
        ROWS,
        WIDTH,
        12,
        anchors_initializer=kc.anchors.Frequency(np.arange(ROWS)),
    )
    model = keras.Sequential([keras.Input((5,), dtype="int32"), layer])
    layer.add_ids(VECTORS)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(MORE), model(MORE))


def softmax():
    return kc.CodeEmbedding(ROWS, WIDTH, 4, 8, learn_codes="softmax")


def taught():
    learn = kc.learners.FollowingCodes(teacher=TABLE)
    return codes(learn_codes=learn)()


def related():
    pairs = np.array([[0, 1]])
    return kc.ANTEmbedding(
        ROWS,
        WIDTH,
        12,
        relations=kc.anchors.Relations(pairs, ROWS),
        negative_weight=0.1,
    )


def untied():
    return codes(kc.ReversibleCodeEmbedding, tie_weights=False)()


@pytest.mark.parametrize(
    "make, message",
    [
        (softmax, "Call `freeze_codes` first"),
        (taught, "learn_codes.teacher = None"),
        (codes(composition="lstm"), "`from_table` of `layer.embeddings`"),
        (
            lambda: kc.ANTEmbedding(ROWS, WIDTH, 12, mixture="sparsemax"),
            "Call `sparsify` first",
        ),
        (related, "without relations"),
        (untied, "`reverse_vectors` must be given"),
    ],
)
def test_layers_that_cannot(make, message):
    layer = make()
    layer.build()
    with pytest.raises(ValueError, match=message):
        layer.add_ids(VECTORS)
    assert layer.input_dim == ROWS


@pytest.mark.parametrize(
    "vectors, message",
    [
        (np.zeros((0, WIDTH)), "a row for each new id"),
        (np.zeros((2, WIDTH + 1)), "`vectors`"),
        (np.zeros(WIDTH), "`vectors`"),
        (np.full((2, WIDTH), np.nan), "`vectors`"),
    ],
)
def test_bad_vectors(vectors, message):
    for name in ("codes", "anchors-fixed", "int4"):
        layer = LAYERS[name]()
        with pytest.raises(ValueError, match=message):
            layer.add_ids(vectors)
        assert layer.input_dim == ROWS


def test_bad_calls():
    with pytest.raises(AttributeError, match="before accessing `add_ids`"):
        kc.CodeEmbedding(ROWS, WIDTH, 4, 8).add_ids(VECTORS)
    with pytest.raises(ValueError, match="about as large as the largest"):
        LAYERS["int4"]().add_ids(100 * VECTORS)
    with pytest.raises(ValueError, match="`max_nonzeros` must be"):
        LAYERS["anchors-fixed"]().add_ids(VECTORS, max_nonzeros=13)
    layer = untied()
    with pytest.raises(ValueError, match="must have the shape of `vectors`"):
        layer.add_ids(VECTORS, reverse_vectors=VECTORS[:2])
    with pytest.raises(ValueError, match="only there"):
        codes(kc.ReversibleCodeEmbedding)().add_ids(VECTORS, VECTORS)
