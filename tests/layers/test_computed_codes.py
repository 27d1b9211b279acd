"""Codes that are digits or hashes of ids, against NumPy and baselines."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from benchmarks.baselines import QuotientRemainderEmbedding
from keras_compembed.codes.computed import digits_of_ids
from keras_compembed.codes.computed import hash_ids

IDS, WIDTH = 400, 7
STDDEV = 0.05 / 3**0.5
ROWS = kc.QuantizedEmbedding(IDS, WIDTH)


def make(sizes=(14, 30), **kwargs):
    arguments = {"codes": "digits", "codebook_size": sizes, **kwargs}
    layer = kc.CodeEmbedding(IDS, WIDTH, **arguments)
    layer.build()
    return layer


@pytest.mark.parametrize(
    ("composition", "operation"),
    [("product", "multiply"), ("sum", "add"), ("concat", "concat")],
)
def test_two_digits_are_quotient_and_remainder(composition, operation):
    layer = make(composition=composition)
    other = QuotientRemainderEmbedding(IDS, WIDTH, 30, operation).in_layer()
    codebooks = np.random.default_rng(0).normal(size=layer.codebooks.shape)
    layer.codebooks.assign(codebooks)
    for weight, part in zip(
        other.weights, np.split(codebooks, [14]), strict=True
    ):
        # With "concat", the second part of a vector is narrower.
        weight.assign(part[:, : weight.shape[1]])
    np.testing.assert_allclose(
        layer(np.arange(IDS)), other(np.arange(IDS)), rtol=1e-6
    )
    np.testing.assert_allclose(layer.embeddings, other.embeddings, rtol=1e-6)


def test_digits():
    for sizes in ((14, 30), (4, 5, 20), (2,) * 40, (400,)):
        found = digits_of_ids(tf.range(IDS), sizes)
        number = np.zeros(IDS, object)
        for digit, size in zip(found.numpy().T, sizes, strict=True):
            assert 0 <= digit.min() and digit.max() < size
            number = number * size + digit
        np.testing.assert_array_equal(number, np.arange(IDS))
    largest = tf.constant([2**31 - 2])
    np.testing.assert_array_equal(
        digits_of_ids(largest, (2, 2**16, 2**15)), [[0, 65535, 32766]]
    )


def test_hashes_are_exact_and_uniform():
    """Integers of any size, which a later version must reproduce."""
    ids, sizes = np.array([0, 1, 12345, 2**31 - 2]), (7, 1 << 28)
    draw = np.random.RandomState(3).randint
    tables = [draw(size, size=(8, 16), dtype="int64") for size in sizes]
    digits = ids[:, None] >> 4 * np.arange(8)[::-1] & 15
    expected = [x[np.arange(8), digits].sum(axis=1) for x in tables]
    found = hash_ids(ids, sizes, seed=3).numpy()
    np.testing.assert_array_equal(found, np.transpose(expected) % sizes)
    np.testing.assert_array_equal(found[:, 0], [0, 0, 6, 6])
    found = hash_ids(tf.range(20_000), (50, 50)).numpy()
    counts = np.bincount(found @ [50, 1], minlength=2500)
    # About as even as drawn: 8 ids for each pair, of variance 8.
    assert counts.var() < 12
    other = hash_ids(tf.range(20_000), (50, 50), seed=1).numpy()
    assert (found != other).mean() > 0.9


@pytest.mark.parametrize("codes", ["digits", ("hashed", 2)])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_steps_on_rows_of_unequal_codebooks(codes, optimizer):
    """Row-sparse steps equal those of dense gradients; other rows stay."""
    layer = make((3, 5, 27), codes=codes, composition="product")
    start = np.random.default_rng(0).normal(size=(35, WIDTH)).astype("float32")
    layer.codebooks.assign(start)
    ids = np.array([[399, 7, 7, 34]])
    targets = np.random.default_rng(1).normal(size=(1, 4, WIDTH))
    targets = targets.astype("float32")
    model = keras.Sequential([keras.Input((4,), dtype="int32"), layer])
    inner = keras.optimizers.get({"class_name": optimizer, "config": {}})
    model.compile(
        kc.optimizers.SparseRowOptimizer(inner), "mse", run_eagerly=True
    )
    model.fit(ids, targets, verbose=0)

    table = keras.Variable(start)
    places = layer.codes[ids[0]].astype(int) + [0, 3, 8]
    with tf.GradientTape() as tape:
        rows = tf.gather(tf.reshape(table.value, table.shape), places)
        loss = tf.reduce_mean(tf.square(tf.reduce_prod(rows, 1) - targets[0]))
    gradient = tf.convert_to_tensor(tape.gradient(loss, table.value))
    dense = keras.optimizers.get({"class_name": optimizer, "config": {}})
    dense.apply([gradient], [table])
    expected = table.numpy()
    np.testing.assert_allclose(layer.codebooks, expected, atol=1e-5)
    untouched = np.setdiff1d(np.arange(35), places)
    np.testing.assert_array_equal(
        layer.codebooks.numpy()[untouched], start[untouched]
    )
    with tf.GradientTape() as tape:
        vectors = layer(ids, training=True)
    gradient = tape.gradient(vectors, layer.codebooks.value)
    assert isinstance(gradient, tf.IndexedSlices)


@pytest.mark.parametrize("codes", ["digits", "hashed"])
def test_last_codebook_is_a_layer(codes):
    """Rounded rows times signs; only rows of the batch are trained."""
    rows = kc.QuantizedEmbedding(30, WIDTH, bits=2, learn_rows=True)
    layer = make(codes=codes, composition="product", codebooks=rows)
    assert layer.codebooks.shape == (14, WIDTH)
    assert np.unique(np.abs(layer.codebooks)) == 1
    first, last = layer.codes.T.astype(int)
    expected = layer.codebooks.numpy()[first] * rows.embeddings.numpy()[last]
    np.testing.assert_array_equal(layer.embeddings, expected)
    with tf.GradientTape() as tape:
        vectors = layer(np.array([[399, 7, 7, 34]]), training=True)
    gradient = tape.gradient(vectors, rows.latent_rows.value)
    touched = {last[x] for x in (399, 7, 34)}
    assert set(gradient.indices.numpy()) == touched
    # Scales grow before logits, not only when rows are looked up.
    rows.latent_rows.assign(100 * rows.latent_rows)
    hidden = np.eye(WIDTH, dtype="float32")
    logits = layer(hidden, reverse=True, training=True)
    lengths = np.abs(logits).mean(), 100 * np.abs(expected).mean()
    assert lengths[0] == pytest.approx(lengths[1], rel=0.02)
    expected = layer.embeddings
    small = kc.strip(layer)
    np.testing.assert_array_equal(small.embeddings, expected)
    (report,) = kc.size_report(small).embeddings
    assert report.stored_bytes == 14 * WIDTH * 4 + 30 * 3 + 4 + 4 * WIDTH
    with refused("reset_codebooks"):
        layer.reset_codebooks()


@pytest.mark.parametrize("sizes", [(20, 20), (8, 8, 8)])
def test_products_start_as_large_as_other_vectors(sizes):
    layer = make(sizes, composition="product")
    assert np.std(layer.embeddings) == pytest.approx(STDDEV, rel=0.1)
    before = layer.codebooks.numpy()
    layer.codebooks.assign(np.zeros_like(before))
    layer.reset_codebooks()
    assert np.std(layer.embeddings) == pytest.approx(STDDEV, rel=0.1)
    stored = kc.CodeEmbedding(IDS, WIDTH, 3, 16, composition="product")
    stored.build()
    assert np.std(stored.embeddings) == pytest.approx(STDDEV, rel=0.1)
    given = make(sizes, composition="product", codebooks=before)
    np.testing.assert_array_equal(given.codebooks, before)


def test_nothing_is_stored_for_an_id():
    layer = make((20, 30), composition="concat")
    assert [weight.shape for weight in layer.weights] == [(50, 4)]
    (row,) = kc.size_report(keras.Sequential([layer])).embeddings
    assert row.stored_bytes == row.shared_bytes == 4 * 50 * 4
    assert layer.num_codebooks == 2 and layer.codes.shape == (IDS, 2)
    layer = kc.CodeEmbedding(IDS, WIDTH, 3, 8, codes="digits")
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    assert layer.codebook_size == 8 and layer.codes.max() == 7
    # New ids would need codes that vectors choose.
    with refused("vectors", layer.name):
        kc.grow(model, {layer.name: np.zeros((1, WIDTH))})
    with refused("codes", "hashed"):
        kc.CodeEmbedding.from_table(np.eye(9), 2, 4, codes="hashed")


def test_logits_of_a_second_table():
    layer = make(codes="hashed", reverse=kc.Reverse(tie_weights=False))
    second = layer.reverse_embedding
    assert second.store.get_config() == layer.store.get_config()
    hidden = np.random.default_rng(0).normal(size=(2, WIDTH)).astype("float32")
    logits = layer(hidden, reverse=True)
    expected = hidden @ np.transpose(second.embeddings)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("codebook_size", {"codebook_size": (13, 30)}),
        ("codebook_size", {"codebook_size": (400, 1)}),
        ("codebook_size", {"codebook_size": (30, 14.0)}),
        ("codebook_size", {"num_codebooks": 2}),
        ("codebook_size", {"codes": "hashed", "codebook_size": 1 << 29}),
        ("codebook_size", {"codes": None, "codebook_size": (14, 30)}),
        ("num_codebooks", {"num_codebooks": 3, "codebook_size": (14, 30)}),
        ("num_codebooks", {"codebook_size": ()}),
        ("num_codebooks", {"codebook_size": (2,) * 9, "composition": "concat"}),
        ("input_dim", {"input_dim": 1 << 31, "codes": "hashed"}),
        ("codes", {"codes": ("digits", 3), "codebook_size": (14, 30)}),
        ("codes", {"codes": "digit"}),
        ("seed", {"codes": ("hashed", -1)}),
        ("codebooks", {"codebooks": np.zeros((2, 30, WIDTH))}),
        ("codebooks", {"codebooks": ROWS, "codebook_size": (14, 30)}),
        ("codebooks", {"codebooks": ROWS, "codes": None}),
        ("codebook_size", {"codebooks": ROWS, "codebook_size": (IDS,)}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_arguments(name, arguments):
    arguments = {"input_dim": IDS, "codes": "digits", **arguments}
    with refused(name):
        kc.CodeEmbedding(output_dim=WIDTH, **arguments)
