"""What layers share, and seeds, in files of models."""

import keras
import numpy as np

import keras_compembed as kc
from keras_compembed.layers.top_classes import TopIds
from keras_compembed.utils.saving import load_seed
from keras_compembed.utils.saving import save_seed

ROWS, WIDTH = 30, 4
layers = keras.layers


def load(model, folder):
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    for one, other in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    return loaded


def test_what_layers_share_is_one_object_in_a_loaded_model(tmp_path):
    table = kc.CodeEmbedding(ROWS, WIDTH, 2, 4)
    parts = [TopIds(table, 2), TopIds(table, 3)]
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, [layer(inputs) for layer in parts])
    loaded = load(model, tmp_path)
    one, other = (loaded.get_layer(layer.name) for layer in parts)
    assert one.table is other.table


def test_a_table_that_comes_after_the_head(tmp_path):
    table = layers.Embedding(ROWS, WIDTH, name="table")
    features, ids = keras.Input((WIDTH,)), keras.Input((), dtype="int32")
    sampling = kc.Sampling(num_candidates=3, num_noises=3)
    head = kc.CANESoftmax(ROWS, sampling=sampling, class_embedding=table)
    classes = head(features)
    vectors = layers.Dense(WIDTH)(layers.Dense(WIDTH)(classes))
    looked_up = layers.Dense(WIDTH)(table(ids))
    model = keras.Model([features, ids], [classes, vectors + looked_up])
    names = [layer.name for layer in model.layers]
    found = [type(layer) for layer in model.layers]
    assert found.index(kc.CANESoftmax) < names.index("table")
    loaded = load(model, tmp_path)
    head_of_loaded = loaded.layers[found.index(kc.CANESoftmax)]
    assert head_of_loaded.class_embedding is loaded.get_layer("table")


def test_numbers_drawn_go_on():
    generator = keras.random.SeedGenerator(3)
    generator.next()
    store = {"0": np.ones(2)}
    other = keras.random.SeedGenerator(4)
    before = other.state.numpy()
    # Files of earlier versions have no state.
    assert list(load_seed(store, other)) == ["0"]
    np.testing.assert_array_equal(other.state, before)
    save_seed(store, generator)
    assert list(load_seed(store, other)) == ["0"]
    np.testing.assert_array_equal(other.next(), generator.next())
