"""Tables of which only the largest numbers are held."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.baselines import SparseEmbedding
from keras_compembed.baselines.row_places import RowPlaces
from keras_compembed.compression import MagnitudePruning
from keras_compembed.compression import PolynomialSparsity
from keras_compembed.methods import Pruned


def make_table(rows=90, width=7, seed=0):
    rng = np.random.default_rng(seed)
    # Rows of very different lengths: some have no large number.
    lengths = rng.gamma(0.5, size=(rows, 1))
    return (lengths * rng.normal(size=(rows, width))).astype("float32")


def largest(table, sparsity, weight=None):
    """The table with zeros for all but the largest numbers."""
    sizes = np.abs(table)
    if weight is not None:
        sizes = sizes * np.sqrt(weight)[:, None]
    number = max(1, round(table.size * (1 - sparsity)))
    threshold = np.sort(sizes, axis=None)[-number]
    return np.where(sizes >= threshold, table, 0)


def rows_of(layer):
    return keras.ops.convert_to_numpy(layer.embeddings)


def test_places():
    rng = np.random.default_rng(0)
    lengths = rng.integers(256, size=50)
    places = RowPlaces(*RowPlaces.pack(lengths))
    starts, stops = places(tf.range(50))
    np.testing.assert_array_equal(stops, np.cumsum(lengths))
    np.testing.assert_array_equal(starts, np.cumsum(lengths) - lengths)


# Rows of 256 columns are two parts, and of 511 three, the last one narrower.
@pytest.mark.parametrize("width", [1, 7, 255, 256, 511])
@pytest.mark.parametrize("sparsity", [0.0, 0.6, 0.97])
def test_largest_numbers_are_kept(width, sparsity):
    table = make_table(width=width)
    layer = SparseEmbedding.from_table(table, sparsity)
    np.testing.assert_array_equal(rows_of(layer), largest(table, sparsity))
    assert layer.columns.shape == (max(1, round(90 * width * (1 - sparsity))),)


def test_weights_of_rows_count():
    table, weight = make_table(), np.arange(90) ** 2
    layer = SparseEmbedding.from_table(table, 0.7, sample_weight=weight)
    expected = largest(table, 0.7, weight / weight.mean())
    np.testing.assert_array_equal(rows_of(layer), expected)


def test_numbers_of_8_bits():
    table = make_table()
    layer = SparseEmbedding.from_table(table, 0.7, bits=8)
    expected = largest(table, 0.7)
    peaks = np.abs(expected).max(axis=0)
    assert (np.abs(rows_of(layer) - expected) <= 0.501 * peaks / 127).all()
    assert layer.values.dtype == "int8"
    assert [x.name for x in layer.trainable_weights] == ["scales"]


@pytest.mark.parametrize("bits", [None, 8])
def test_new_rows_are_random(bits):
    layer = SparseEmbedding(400, 300, 0.9, bits, seed=0)
    layer.build()
    rows = rows_of(layer)
    zeros = (rows == 0).sum(axis=1)
    if bits is None:
        assert (zeros == 270).all()
    assert np.std(rows) == pytest.approx(layer.INITIAL_STDDEV, rel=0.05)
    columns = (rows != 0).mean(axis=0)
    assert 0.02 < columns.min() and columns.max() < 0.2
    again = SparseEmbedding(400, 300, 0.9, bits, seed=0)
    again.build()
    np.testing.assert_array_equal(rows_of(again), rows)


@pytest.mark.parametrize(
    ("quantize", "bits", "length"),
    [
        (None, None, None),
        (None, 8, 6),
        ("float16", None, 6),
        ("float16", 8, None),
        ("int8", None, None),
        ("int8", 8, 6),
    ],
)
def test_files(quantize, bits, length, tmp_path):
    """All rows of the file are those of Keras, rounded; ops are built in."""
    layer = SparseEmbedding.from_table(make_table(200, 300), 0.95, bits)
    model = keras.Sequential([keras.Input((length,), dtype="int32"), layer])
    path = tmp_path / "model.tflite"
    export = kc.export.export_litert(model, path, quantize=quantize, verbose=0)
    peak = np.abs(rows_of(layer)).max()
    step = {None: 1e-6, "float16": 2**-11, "int8": 1 / 250}[quantize]
    run = kc.export.LiteRTModel(path)
    ids = np.resize(np.arange(200, dtype="int32"), (34, 6))
    rows = np.concatenate([run(ids[i : i + 1]) for i in range(34)])
    expected = np.asarray(model(ids))
    np.testing.assert_allclose(rows, expected, atol=peak * step)
    assert export.max_error <= peak * step
    found = kc.export.inspect_litert(path)
    wanted = Pruned(0.95, bits).litert_bytes(200, 300, quantize)
    assert abs(found.constant_bytes - wanted) < 300


def test_a_table_that_was_pruned_in_training():
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(200, 8, name="words"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    ids = np.random.default_rng(0).integers(200, size=(64, 5))
    pruning = MagnitudePruning(PolynomialSparsity(0.9, 4, frequency=2))
    model.fit(ids, ids[:, 0] % 2, 16, verbose=0, callbacks=[pruning])
    small = kc.compression.compress_model(
        model, method=Pruned(0.9), min_bytes=0, verbose=0
    )
    assert isinstance(small.get_layer("words"), SparseEmbedding)
    # Nothing is lost.
    np.testing.assert_allclose(small(ids), model(ids), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sparsity": 1.0}, "`sparsity` must be a number from 0 to below 1"),
        ({"sparsity": True}, "`sparsity` must be a number"),
        ({"bits": 4}, "`bits` must be one of None, 8"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SparseEmbedding(10, 4, **arguments)
    with pytest.raises(ValueError, match=message):
        Pruned(**arguments)


def test_method():
    assert Pruned(0.985).name == "pruned 98.5%"
    assert Pruned(0.9, 8).name == "pruned 90% int8"
    assert Pruned(0.9).reason_against(1000, 64) is None
    assert "32 bits" in Pruned(0.5).reason_against(2**28, 256)
