"""Rows of few bits, as they are read, scored and learned."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc

ROWS, WIDTH = 40, 11
TABLE = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")
SHAPES = [
    {"bits": 8},
    {"bits": 4, "block_size": 4},
    {"bits": 2, "rank": 5, "block_size": 2},
]
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)


def from_table(cls=kc.QuantizedEmbedding, table=TABLE, **kwargs):
    return cls.from_table(table, **{"seed": 0, "verbose": 0, **kwargs})


def decode(layer):
    """The table by the definition, from the bytes of the weights."""
    packed, bits = layer.packed_rows.numpy(), layer.bits
    table = np.zeros((ROWS, layer.width))
    for row, column in np.ndindex(table.shape):
        place = column * bits
        field = (packed[row, place // 8] >> place % 8) & (2**bits - 1)
        integer = int(field) - (2**bits if field >> (bits - 1) else 0)
        block = column // (layer.block_size or layer.width)
        scale = int(layer.scales.numpy()[row, block])
        table[row, column] = integer * scale * layer.scale_unit.numpy()
    table += layer.mean_row.numpy()
    if layer.rank is not None:
        table = table @ layer.projection.numpy()
    return table


@EVERY_SHAPE
def test_vectors_equal_the_reference(shape):
    layer = from_table(**shape)
    expected = decode(layer)
    np.testing.assert_allclose(layer(IDS), expected[IDS], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.embeddings, expected, rtol=1e-5, atol=1e-6)
    rows = layer.rounded_table().decode()
    if layer.rank is not None:
        rows = rows @ layer.projection.numpy()
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        *((shape, ROWS) for shape in SHAPES),
        # Read in two parts, of 64 rows and of 3; or just in one.
        ({"bits": 8, "width": 1 << 16}, 67),
        ({"bits": 8, "width": 1 << 16}, 64),
    ],
    ids=str,
)
def test_logits_equal_the_reference(shape, rows):
    width = shape.get("width", WIDTH)
    shape = {key: shape[key] for key in shape if key != "width"}
    rng = np.random.default_rng(1)
    layer = from_table(table=rng.normal(size=(rows, width)), **shape)
    table = np.asarray(layer.embeddings)
    vectors = tf.constant(rng.normal(size=(2, 3, width)), "float32")
    products = vectors.numpy() @ table.T
    # Sums of so many products of size 1.
    atol = 2e-5 * np.sqrt(width)
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        logits = layer(vectors, reverse=True)
        loss = tf.reduce_sum(tf.square(logits)) / 2
    np.testing.assert_allclose(logits, products, rtol=1e-4, atol=atol)
    np.testing.assert_allclose(
        tape.gradient(loss, vectors),
        products @ table,
        rtol=1e-3,
        atol=atol * np.abs(products).max(),
    )
    in_a_graph = tf.function(lambda x: layer(x, reverse=True))(vectors)
    np.testing.assert_allclose(in_a_graph, logits, rtol=1e-4, atol=atol)
    scores, _ = layer.top_k(vectors, 4)
    best = np.sort(products, axis=-1)[..., :-5:-1]
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=atol)


def test_from_table(capsys):
    weight = np.where(np.arange(ROWS) < 20, 5.0, 0.1)
    layer = from_table(rank=0.7, bits=8, sample_weight=weight, verbose=1)
    energies = np.linalg.svd(np.sqrt(weight)[:, None] * TABLE, compute_uv=False)
    shares = np.cumsum(energies**2) / np.sum(energies**2)
    assert layer.rank == 1 + np.argmax(shares >= 0.7)
    error = (TABLE - np.asarray(layer.embeddings)) ** 2
    said = float(capsys.readouterr().out.split()[-1])
    assert said == pytest.approx(error.sum() / np.sum(TABLE**2), rel=0.01)
    assert error[:20].mean() < error[20:].mean()


@EVERY_SHAPE
def test_rows_are_learned_and_fixed(shape):
    layer = from_table(table=0.1 * TABLE, learn_rows=True, **shape)
    fixed = from_table(table=0.1 * TABLE, **shape)
    learned, own = (
        np.sum((0.1 * TABLE - np.asarray(each.embeddings)) ** 2)
        for each in (layer, fixed)
    )
    # Scales are searched for longer where this is done once.
    assert learned < {8: 5, 4: 2, 2: 1.5}[layer.bits] * own
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
    ids, targets = np.arange(ROWS), TABLE[::-1]
    losses = model.fit(ids, targets, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    # As near to the latent rows as rows of so many bits are: scales follow.
    latents = layer.latent_rows.numpy()
    rows = layer.rounded_table().decode()
    most = {8: 1e-3, 4: 0.03, 2: 0.25}[layer.bits]
    assert np.sum((rows - latents) ** 2) < most * np.sum(latents**2)

    before = np.asarray(layer(ids))
    same = kc.strip(layer)
    np.testing.assert_array_equal(same(ids), before)
    np.testing.assert_allclose(decode(same), before, rtol=1e-5, atol=1e-6)
    assert not same.learn_rows and not hasattr(same, "latent_rows")


def test_rows_are_learned_in_models_without_an_input():
    """Keras initializes such weights after it made them all."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.words = kc.QuantizedEmbedding(ROWS, WIDTH, 4, learn_rows=True)

        def call(self, ids):
            return self.words(ids)

    model = Model()
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 3), int), np.zeros((8, 3, WIDTH)), verbose=0)
    assert model.words.scale_unit.numpy() > 0


@pytest.mark.parametrize("reverse", [False, True])
def test_unit_grows_with_the_rows(reverse):
    layer = from_table(bits=8, learn_rows=True)
    small = float(layer.scale_unit.numpy())
    layer.latent_rows.assign(10 * TABLE)
    # Not where nothing is trained.
    layer(IDS)
    assert float(layer.scale_unit.numpy()) == small
    inputs = TABLE.astype("float32") if reverse else np.arange(ROWS)
    outputs = layer(inputs, reverse=reverse, training=True)
    assert float(layer.scale_unit.numpy()) == pytest.approx(10 * small)
    expected = 10 * (TABLE @ TABLE.T if reverse else TABLE)
    np.testing.assert_allclose(outputs, expected, atol=2.0)
    np.testing.assert_array_equal(layer(inputs, reverse=reverse), outputs)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bits", {"bits": 3}),
        ("rank", {"rank": 12}),
        ("block_size", {"rank": 0.5, "block_size": 12}),
        ("scale_dtype", {"scale_dtype": "float16"}),
        ("reverse", {"reverse": True}),
        ("table", {"table": TABLE[0]}),
        ("sample_weight", {"sample_weight": [1, 2]}),
        # Squares of these are none that float32 can hold: scales were
        # infinite, or all rows were 0.
        (None, {"table": 1e30 * TABLE, "rank": 2}),
        (None, {"table": 1e-36 * TABLE}),
    ],
    ids=itertools.count(),
)
def test_refused(name, arguments):
    with refused(name):
        from_table(**arguments)


def test_short_rows_that_are_lost():
    table = np.concatenate([TABLE, 1e4 * TABLE[:1]])
    for rank in (None, 3):
        with pytest.warns(UserWarning, match="much longer"):
            from_table(table=table, bits=2, rank=rank)
