"""Tables with many zeros or few numbers, stored without loss."""

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.methods import Codes

RNG = np.random.default_rng(0)
ROWS, WIDTH = 1200, 16
DENSE = RNG.normal(size=(ROWS, WIDTH)).astype("float32")


def few(number):
    numbers = RNG.normal(size=number).astype("float32")
    return numbers[RNG.integers(number, size=DENSE.shape)]


TABLES = {
    "zeros": np.where(np.abs(DENSE) > 0.8, DENSE, 0),
    "3 numbers": few(3),
    "16 numbers": few(16),
    # The better of both.
    "many zeros and 16": few(16) * (np.abs(DENSE) > 2.5),
}


def make_model(table, *layers):
    layers = layers or (keras.layers.Conv1D(2, 3), keras.layers.Flatten())
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(*table.shape, name="words"),
            *layers,
        ]
    )
    model.get_layer("words").set_weights([table])
    return model


def compress(table, *layers, **kwargs):
    return kc.compress_model(make_model(table, *layers), verbose=0, **kwargs)


@pytest.mark.parametrize(
    "table, kind, most_bytes",
    [
        ("zeros", "SparseEmbedding", 0.43 * DENSE.size * 5),
        ("16 numbers", "CodeEmbedding", DENSE.size / 2),
        ("many zeros and 16", "SparseEmbedding", 0.013 * DENSE.size * 5),
    ],
)
def test_nothing_is_lost(table, kind, most_bytes, tmp_path):
    table = TABLES[table]
    small = compress(table)
    layer = small.get_layer("words")
    assert type(layer).__name__ == kind
    np.testing.assert_array_equal(layer.embeddings, table)
    small.save(tmp_path / "small.keras")
    small = keras.saving.load_model(tmp_path / "small.keras")
    np.testing.assert_array_equal(small.get_layer("words").embeddings, table)
    path = str(tmp_path / "small.tflite")
    export = kc.export_litert(small, path, verbose=0, quantize=None)
    assert export.file_bytes < most_bytes + 14_000
    ids = RNG.integers(ROWS, size=(3, 5)).astype("int32")
    outputs = kc.export.LiteRTModel(path).predict(ids)
    np.testing.assert_allclose(outputs, small(ids), atol=1e-6)


def test_other_tables_get_codes():
    few_zeros = np.where(np.abs(DENSE) > 0.6, DENSE, 0)
    layer = compress(few_zeros).get_layer("words")
    assert (layer.num_codebooks, layer.codebook_size) == (32, 16)
    # What is given holds.
    layer = compress(TABLES["3 numbers"], how=Codes(4, 8)).get_layer("words")
    assert (layer.num_codebooks, layer.codebook_size) == (4, 8)


def test_pooled_and_tied_tables():
    table = TABLES["3 numbers"]
    pooled = compress(table, keras.layers.GlobalAveragePooling1D())
    layer = pooled.get_layer("words")
    assert isinstance(layer, kc.CodeEmbedding) and layer.combiner
    np.testing.assert_array_equal(layer.embeddings, table)
    # No layer of sparse rows gives logits.
    for name in ("3 numbers", "zeros"):
        table = TABLES[name]
        tied = keras.layers.ReversibleEmbedding(ROWS, WIDTH, name="words")
        ids = keras.Input((5,), dtype="int32")
        model = keras.Model(ids, tied(tied(ids), reverse=True))
        tied.set_weights([table])
        small = kc.compress_model(model, verbose=0)
        got = small.get_layer("words").embeddings
        assert np.array_equal(got, table) == (name == "3 numbers")


@pytest.mark.slow
def test_search_finds_what_loses_nothing():
    small = compress(TABLES["16 numbers"], how=kc.Budget(30_000, quantize=None))
    layer = small.get_layer("words")
    np.testing.assert_array_equal(layer.embeddings, TABLES["16 numbers"])
