"""Rows of few bits, as they are read, scored and learned."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_frozen
from layer_checks import check_layer

import keras_compembed as kc
from keras_compembed.rounding import rounded_rows

ROWS, WIDTH = 40, 11
TABLE = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")
SHAPES = [
    {"bits": bits, **shape}
    for bits, shape in itertools.product(
        (8, 4, 2), ({}, {"block_size": 4}, {"rank": 5, "block_size": 2})
    )
]
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)
# Each number of bits, and each kind of row.
TRAINED = [SHAPES[place] for place in (0, 4, 6, 8)]


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


def model_of(layer, is_pooled=False):
    pool = [] if is_pooled else [keras.layers.GlobalAveragePooling1D()]
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layer,
            *pool,
            keras.layers.Dense(
                3, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )


def train(model, optimizer=None, epochs=1, **kwargs):
    model.compile(
        optimizer or keras.optimizers.SGD(1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **{"jit_compile": False, **kwargs},
    )
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=48)
    ids = labels[:, None] + 3 * rng.integers(13, size=(48, 6))
    history = model.fit(
        ids, labels, batch_size=16, epochs=epochs, shuffle=False, verbose=0
    )
    return history.history["loss"]


@pytest.mark.parametrize(
    ("settings", "trainable", "other"),
    [
        ({"bits": 4, "block_size": 2, "rank": 5}, 1, 3),
        ({"bits": 2, "learn_rows": True}, 1, 4),
    ],
)
def test_layer_checks(settings, trainable, other, tmp_path):
    check_layer(
        kc.QuantizedEmbedding,
        {"input_dim": 30, "output_dim": WIDTH, "seed": 1, **settings},
        IDS,
        expected_output_shape=(2, 3, WIDTH),
        expected_trainable_weights=trainable,
        expected_non_trainable_weights=other,
        tmp_path=tmp_path,
    )


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


@EVERY_SHAPE
def test_logits_equal_the_reference(shape, monkeypatch):
    layer = from_table(**shape)
    table = decode(layer)
    vectors = np.random.default_rng(1).normal(size=(2, 3, WIDTH))
    vectors = tf.constant(vectors, "float32")
    sources = [vectors]
    if layer.rank is not None:
        sources.append(layer.projection.value)

    def check():
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            logits = layer(vectors, reverse=True)
            loss = tf.reduce_sum(tf.square(logits))
        expected = vectors.numpy() @ table.T
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
        gradients = tape.gradient(loss, sources)
        np.testing.assert_allclose(
            gradients[0], 2 * expected @ table, rtol=1e-4, atol=1e-3
        )
        return [np.asarray(gradient) for gradient in gradients]

    whole = check()
    # A few rows at a time, the last of which are fewer.
    monkeypatch.setattr(rounded_rows, "_CHUNK_ELEMENTS", 7 * layer.width)
    for part, expected in zip(check(), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-4)
    logits = tf.function(lambda x: layer(x, reverse=True))(vectors)
    for scores, ids in (layer.top_k(vectors, 4), tf.math.top_k(logits, 4)):
        np.testing.assert_allclose(
            np.take_along_axis(vectors.numpy() @ table.T, np.asarray(ids), -1),
            scores,
            rtol=1e-4,
            atol=1e-4,
        )


def test_mask():
    layer = from_table(bits=4, mask_zero=True)
    np.testing.assert_array_equal(layer.compute_mask(IDS), IDS != 0)
    assert from_table(bits=4).compute_mask(IDS) is None


def test_random_rows_follow_the_seed():
    tables = []
    for seed in (0, 0, 1, None, None):
        layer = kc.QuantizedEmbedding(ROWS, WIDTH, 4, seed=seed)
        tables.append(np.asarray(layer(np.arange(ROWS))))
        # As those of `keras.layers.Embedding`.
        assert 0.04 < np.abs(tables[-1]).max() <= 0.0501
    np.testing.assert_array_equal(tables[0], tables[1])
    for one, other in itertools.combinations(tables[1:], 2):
        assert not np.array_equal(one, other)


def test_ids_out_of_range():
    layer = from_table()
    for bad in (-1, ROWS):
        with pytest.raises(tf.errors.InvalidArgumentError):
            layer(np.array([bad]))


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
    function = tf.function(lambda: layer(ids, training=True))
    function()
    before = np.asarray(layer(ids))
    layer.freeze_rows()
    np.testing.assert_array_equal(layer(ids), before)
    np.testing.assert_allclose(decode(layer), before, rtol=1e-5, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="freeze_rows"):
        function()
    assert not layer.learn_rows and not hasattr(layer, "latent_rows")
    names = [weight.name for weight in model.optimizer.variables]
    assert not any("latent" in name for name in names)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.layers[0](ids), before)
    if shape == SHAPES[0]:
        model.fit(np.zeros((2, 6)), np.zeros(2), verbose=0)
        with pytest.raises(ValueError, match="must be called once"):
            layer.freeze_rows()


def test_gradients_go_straight_through():
    layer = from_table(bits=2, learn_rows=True)
    weights = np.random.default_rng(2).normal(size=(2, 3, WIDTH))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(IDS, training=True) * weights)
    gradient = tf.convert_to_tensor(
        tape.gradient(loss, layer.latent_rows.value)
    )
    expected = np.zeros((ROWS, WIDTH))
    np.add.at(expected, IDS, weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


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
    if not reverse:
        layer.trainable = False
        layer.latent_rows.assign(100 * TABLE)
        check_frozen(layer, lambda: layer(IDS, training=True))


def test_unit_of_two_devices_grows_with_the_rows_of_each(strategy):
    # The largest is read by the second device.
    table = TABLE * np.where(np.arange(ROWS) == 3, 100, 1)[:, None]
    one = from_table(bits=8, learn_rows=True)
    with strategy.scope():
        two = from_table(bits=8, learn_rows=True)
    for layer in (one, two):
        layer.latent_rows.assign(table)

    def read():
        context = tf.distribute.get_replica_context()
        first = context.replica_id_in_sync_group * 2
        return two(first + tf.range(2), training=True)

    rows = strategy.experimental_local_results(strategy.run(tf.function(read)))
    expected = one(np.arange(4), training=True)
    np.testing.assert_array_equal(tf.concat(rows, axis=0), expected)
    for unit in strategy.experimental_local_results(two.scale_unit.value):
        assert float(unit) == float(one.scale_unit.numpy())


def test_xla_trains_the_same():
    weights = []
    for jit_compile in (False, True):
        layer = from_table(bits=4, rank=5, learn_rows=True)
        model = model_of(layer)
        train(model, jit_compile=jit_compile)
        weights.append(layer.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [None, 5])
@pytest.mark.parametrize("learn_rows", [False, True])
def test_pooled_rows_train_as_rows_do(rank, learn_rows):
    weights = []
    for cls in (kc.QuantizedEmbedding, kc.QuantizedEmbedReduce):
        layer = from_table(
            cls, bits=4, block_size=3, rank=rank, learn_rows=learn_rows
        )
        is_pooled = cls is kc.QuantizedEmbedReduce
        model = model_of(layer, is_pooled=is_pooled)
        losses = train(model, run_eagerly=True)
        weights.append([losses, *layer.get_weights()])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_reversible_layers_are_learned(tie_weights):
    tables = {"table": TABLE}
    if not tie_weights:
        tables["reverse_table"] = TABLE[::-1]
    layer = from_table(
        kc.ReversibleQuantizedEmbedding, bits=4, learn_rows=True, **tables
    )
    second = layer if tie_weights else layer.reverse_embedding
    np.testing.assert_allclose(
        second.embeddings, tables.get("reverse_table", TABLE), atol=0.4
    )
    ids = keras.Input((6,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(layer(ids))
    model = keras.Model(ids, layer(hidden, reverse=True))
    losses = train(model, epochs=3, run_eagerly=True)
    assert losses[-1] < losses[0]
    inputs = np.arange(ROWS)[:36].reshape(6, 6)
    before = model.predict(inputs, verbose=0)
    layer.freeze_rows()
    assert not second.learn_rows
    assert not model.trainable_weights
    np.testing.assert_array_equal(model.predict(inputs, verbose=0), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_dim": 0}, "`input_dim` must be a positive integer"),
        ({"output_dim": 2.5}, "`output_dim` must be a positive integer"),
        ({"bits": 3}, "`bits` must be one of 8, 4, 2"),
        ({"bits": 4.0}, "`bits` must be one of 8, 4, 2"),
        ({"rank": 12}, "`rank` must be an integer from 1 to 11"),
        ({"rank": 0.5}, "`rank` must be an integer from 1 to 11"),
        ({"block_size": 0}, "`block_size` must be an integer from 1 to 11"),
        (
            {"rank": 4, "block_size": 5},
            "`block_size` must be an integer from 1 to 4",
        ),
        ({"scale_dtype": "float16"}, "`scale_dtype` must be one of"),
        ({"learn_rows": 1}, "`learn_rows` must be True or False"),
        ({"mask_zero": None}, "`mask_zero` must be True or False"),
        ({"seed": -1}, "`seed` must be None or an integer"),
    ],
    ids=str,
)
def test_bad_arguments(arguments, message):
    settings = {"input_dim": ROWS, "output_dim": WIDTH, **arguments}
    with pytest.raises(ValueError, match=message):
        kc.QuantizedEmbedding(**settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": TABLE[0]}, "`table` must have two axes"),
        ({"sample_weight": [1, 2]}, "`sample_weight` must hold one number"),
        ({"rank": 1.5}, "`rank` must be an integer from 1 to 11"),
        ({"rank": 0.5, "bits": 5}, "`bits` must be one of"),
        ({"rank": 0.5, "block_size": 12}, "`block_size` must be"),
    ],
    ids=["table", "weight", "rank", "bits", "blocks"],
)
def test_from_table_refuses_before_it_rounds(arguments, message, monkeypatch):
    monkeypatch.setattr(kc.QuantizedEmbedding, "round_table", None)
    with pytest.raises(ValueError, match=message):
        from_table(**arguments)


def test_tables_of_another_shape():
    with pytest.raises(ValueError, match="`table` must have the shape"):
        from_table().round_table(TABLE[1:])
    with pytest.raises(ValueError, match="squares float32 can hold"):
        from_table(table=1e30 * TABLE, rank=2)
    # Of rows that are not projected, scales were infinite.
    with pytest.raises(ValueError, match="squares float32 can hold"):
        from_table(table=np.full((3, 4), 3e38))
    # All were rounded to 0.
    with pytest.raises(ValueError, match="squares float32 can hold"):
        from_table(table=1e-36 * TABLE, rank=None)


def test_short_rows_that_are_lost():
    table = np.concatenate([TABLE, 1e4 * TABLE[:1]])
    for rank in (None, 3):
        with pytest.warns(UserWarning, match="far longer") as said:
            from_table(table=table, bits=2, rank=rank)
        assert [x.filename for x in said] == [__file__]


def test_what_an_unbuilt_layer_lacks():
    layer = kc.QuantizedEmbedding(ROWS, WIDTH, learn_rows=True)
    for name, call in (
        ("numpy_integers", lambda: layer.numpy_integers()),
        ("integers", lambda: layer.integers(IDS)),
        ("embeddings", lambda: layer.embeddings),
        ("freeze_rows", layer.freeze_rows),
        ("round_table", lambda: layer.round_table(TABLE)),
    ):
        with pytest.raises(AttributeError, match=f"accessing `{name}`"):
            call()
