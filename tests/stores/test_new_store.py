"""A new kind of storage is one class, which a `LookupLayer` takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_any_converter
from layer_checks import check_config
from layer_checks import check_id_types

import keras_compembed as kc
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.stores.row_arrays import RowArrays
from keras_compembed.stores.row_arrays import append_rows
from keras_compembed.stores.row_arrays import check_arrays
from keras_compembed.stores.store import Store

IDS, WIDTH, ROWS = 50, 6, 8


@keras.saving.register_keras_serializable(package="tests")
class SharedRows(Store):
    """A few rows, each that of many ids."""

    settings = ("num_rows",)

    def __init__(self, input_dim, output_dim, num_rows):
        super().__init__(input_dim, output_dim)
        self.num_rows = num_rows

    def make_variables(self, add):
        shape = self.num_rows, self.output_dim
        self.rows = add("rows", shape=shape, initializer="uniform")

    def read(self, ids, training=False, counts=None):
        return tf.gather(self.rows.value, ids % self.num_rows)

    def litert_bytes(self, quantize=None):
        return 4 * self.num_rows * self.output_dim


@keras.saving.register_keras_serializable(package="tests")
class Halves(Store):
    """A table in half precision, which files of vectors hold."""

    kind = "halves"

    def make_variables(self, add):
        shape = self.input_dim, self.output_dim
        self.table = add("table", shape=shape, dtype="float16")

    def read(self, ids, training=False, counts=None):
        return tf.cast(tf.gather(self.table.value, ids), "float32")

    def arrays(self):
        table = {"table": keras.ops.convert_to_numpy(self.table)}
        return HalfRows({"columns": self.output_dim}, table, {})

    def load(self, arrays):
        self.table.assign(arrays.rows["table"])

    def get_config(self):
        return {"input_dim": self.input_dim, "output_dim": self.output_dim}


class HalfRows(RowArrays):
    kind, name = Halves.kind, "halves"
    shared_kind = "nothing"

    @classmethod
    def check(cls, settings, rows, shared, count):
        check_arrays(rows, {"table": ("float16", (count, WIDTH))})

    def start(self):
        pass

    def read(self, ids):
        return self.rows["table"][ids].astype("float32")

    def make_store(self):
        return Halves(*self.shape)

    def with_vectors(self, vectors):
        more = {"table": vectors.astype("float16")}
        return self.with_rows(append_rows(self.rows, more))


def make_layer(**kwargs):
    return LookupLayer(SharedRows(IDS, WIDTH, ROWS), name="words", **kwargs)


def table_of(layer):
    return layer.rows.numpy()[np.arange(IDS) % ROWS]


@pytest.fixture(scope="module")
def model():
    """A trained model whose output are the logits of the next id."""
    keras.utils.set_random_seed(0)
    layer = make_layer(reverse=kc.Reverse(logit_soft_cap=3.0))
    ids = keras.Input((4,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(layer(ids))
    hidden = keras.layers.Dense(WIDTH)(hidden)
    model = keras.Model(ids, layer(hidden, reverse=True))
    model.compile(
        kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.1)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def examples():
    ids = np.random.default_rng(0).integers(IDS, size=(64, 4)).astype("int32")
    return ids, ids[:, 0] % ROWS


def test_look_ups_logits_and_sums():
    layer = make_layer()
    check_config(layer)
    check_id_types(layer)
    table = table_of(layer)
    np.testing.assert_array_equal(layer.embeddings, table)
    vectors = tf.random.normal((2, 3, WIDTH), seed=0)
    logits = layer(vectors, reverse=True)
    np.testing.assert_allclose(logits, vectors @ table.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        layer.top_k(vectors, 4)[1], tf.math.top_k(logits, 4).indices
    )
    pooled = make_layer(combiner="mean", mask_zero=True)
    ids = np.array([[4, 12, 0], [49, 0, 0]])
    means = pooled(ids, training=True)
    table = table_of(pooled)
    expected = [(table[4] + table[12]) / 2, table[49]]
    np.testing.assert_allclose(means, expected, rtol=1e-6)
    untied = make_layer(reverse=kc.Reverse(tie_weights=False))
    logits = untied(vectors, reverse=True)
    other = table_of(untied.reverse_embedding)
    np.testing.assert_allclose(logits, vectors @ other.T, rtol=1e-5, atol=1e-6)


def test_models_are_trained_saved_measured_and_exported(model, tmp_path):
    inputs, labels = examples()
    before = model.evaluate(inputs, labels, verbose=0)
    model.fit(inputs, labels, epochs=3, verbose=0)
    assert model.evaluate(inputs, labels, verbose=0) < before - 0.1
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(inputs), model(inputs))
    layer = again.get_layer("words")
    report = kc.size_report(again, table_of(layer))
    (row,) = report.embeddings
    assert row.stored_bytes == layer.store.litert_bytes() == 4 * ROWS * WIDTH
    assert row.ratio == IDS / ROWS
    check_any_converter(again, inputs, tmp_path)
    path = tmp_path / "model.tflite"
    export = kc.export_litert(again, path, verbose=0, quantize=None)
    assert export.max_error < 1e-6 and export.held_layers == ("words",)


def test_files_of_vectors(tmp_path, monkeypatch):
    """By one line in the table of kinds."""
    monkeypatch.setitem(kc.stores.KINDS, HalfRows.kind, HalfRows)
    layer = LookupLayer(Halves(IDS, WIDTH))
    layer.build()
    words = [f"word{row}" for row in range(IDS)]
    kc.vectors.CompressedVectors(words, layer).save(tmp_path / "small.npz")
    small = kc.vectors.CompressedVectors.load(tmp_path / "small.npz")
    np.testing.assert_array_equal(small.table(), layer.embeddings)
    lookup, embedding = small.to_layers(mask_zero=True)
    np.testing.assert_array_equal(embedding(lookup(words)), layer.embeddings)
    mean = np.asarray(layer.embeddings).mean(axis=0)
    np.testing.assert_allclose(embedding(lookup("?")), mean, atol=1e-4)
    assert kc.strip(layer).store.kind == "halves"
