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
    {"bits": 8, "rank": 5, "block_size": 2},
    {"bits": 4, "block_size": 4},
    {"bits": 4, "rank": 5, "block_size": 2},
    {"bits": 2},
    {"bits": 2, "rank": 5, "block_size": 2},
]
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)
# Each number of bits, and each kind of row.
TRAINED = [SHAPES[place] for place in (0, 2, 5)]


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
    if layer.rank is not None:
        table = table @ layer.projection.numpy()
    return table


def model_of(layer):
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                3, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )


def train(model, optimizer, epochs):
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=48)
    ids = labels[:, None] + 3 * rng.integers(13, size=(48, 6))
    history = model.fit(
        ids, labels, batch_size=16, epochs=epochs, shuffle=False, verbose=0
    )
    return history.history["loss"]


@EVERY_SHAPE
def test_vectors_equal_the_reference(shape):
    layer = from_table(**shape)
    expected = decode(layer)
    np.testing.assert_allclose(layer(IDS), expected[IDS], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.embeddings, expected, rtol=1e-5, atol=1e-6)
    integers = layer.numpy_integers()
    assert integers.dtype == "int8" and integers.shape == (ROWS, layer.width)
    np.testing.assert_array_equal(layer.integers(tf.range(ROWS)), integers)
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
    scores, ids = layer.top_k(vectors, 4)
    best = np.sort(products, axis=-1)[..., :-5:-1]
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=atol)
    np.testing.assert_allclose(
        np.take_along_axis(products, np.asarray(ids), -1), best, 1e-4, atol
    )


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
    # Tables of other kinds of numbers.
    for dtype in ("float16", "int8"):
        table = (TABLE * 20).astype(dtype)
        np.testing.assert_allclose(
            from_table(table=table).embeddings, table, atol=0.3
        )


@pytest.mark.parametrize("shape", TRAINED, ids=str)
def test_rows_are_learned_and_fixed(shape, tmp_path):
    layer = from_table(table=0.1 * TABLE, learn_rows=True, **shape)
    fixed = from_table(table=0.1 * TABLE, **shape)
    learned, own = (
        np.sum((0.1 * TABLE - np.asarray(each.embeddings)) ** 2)
        for each in (layer, fixed)
    )
    # Scales are searched for longer where this is done once.
    assert learned < {8: 5, 4: 2, 2: 1.5}[layer.bits] * own
    model = model_of(layer)
    losses = train(model, keras.optimizers.Adam(0.05), epochs=4)
    assert losses[-1] < 0.5 * losses[0]
    # As near to the latent rows as rows of so many bits are: scales follow.
    latents = layer.latent_rows.numpy()
    rows = layer.rounded_table().decode()
    most = {8: 1e-3, 4: 0.03, 2: 0.25}[layer.bits]
    assert np.sum((rows - latents) ** 2) < most * np.sum(latents**2)

    ids = np.arange(ROWS)
    before = np.asarray(layer(ids))
    small = kc.strip(model)
    same = small.layers[0]
    np.testing.assert_array_equal(same(ids), before)
    np.testing.assert_allclose(decode(same), before, rtol=1e-5, atol=1e-6)
    assert not same.learn_rows and not hasattr(same, "latent_rows")
    names = [weight.name for weight in small.optimizer.variables]
    assert not any("latent" in name for name in names)
    if shape == SHAPES[0]:
        small.fit(np.zeros((2, 6)), np.zeros(2), verbose=0)


@pytest.mark.parametrize("combiner", [None, "mean"])
def test_rows_are_learned_in_models_without_an_input(combiner):
    """Keras initializes such weights after it made them all."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.words = kc.QuantizedEmbedding(
                ROWS, WIDTH, 4, learn_rows=True, combiner=combiner
            )

        def call(self, ids):
            return self.words(ids)

    model = Model()
    model.compile("sgd", "mse")
    shape = (8,) if combiner else (8, 3)
    model.fit(np.ones((8, 3), int), np.zeros((*shape, WIDTH)), verbose=0)
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
    ("name", "value", "more"),
    [
        ("input_dim", 0, {}),
        ("bits", 3, {}),
        ("rank", 12, {}),
        ("block_size", 0, {}),
        ("block_size", 5, {"rank": 4}),
        ("scale_dtype", "float16", {}),
        ("learn_rows", 1, {}),
        ("mask_zero", None, {}),
        ("combiner", "max", {}),
        ("reverse", True, {}),
    ],
)
def test_bad_arguments(name, value, more):
    settings = {"input_dim": ROWS, "output_dim": WIDTH, name: value}
    with refused(name, value):
        kc.QuantizedEmbedding(**settings, **more)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("table", {"table": TABLE[0]}),
        ("sample_weight", {"sample_weight": [1, 2]}),
        ("rank", {"rank": 1.5}),
        ("bits", {"rank": 0.5, "bits": 5}),
        ("block_size", {"rank": 0.5, "block_size": 12}),
        # Squares of these are none that float32 can hold: scales were
        # infinite, or all rows were 0.
        (None, {"table": 1e30 * TABLE, "rank": 2}),
        (None, {"table": 1e-36 * TABLE}),
    ],
    ids=itertools.count(),
)
def test_from_table_refuses(name, arguments):
    with refused(name):
        from_table(**arguments)


def test_short_rows_that_are_lost():
    table = np.concatenate([TABLE, 1e4 * TABLE[:1]])
    for rank in (None, 3):
        with pytest.warns(UserWarning, match="far longer") as said:
            from_table(table=table, bits=2, rank=rank)
        assert [x.filename for x in said] == [__file__]
