"""What layers share within them is one object again in a loaded model."""

import keras
import numpy as np
import pytest

import keras_compembed as kc

ROWS, WIDTH = 30, 4


def head(embedding):
    return kc.CANESoftmax(
        ROWS, num_candidates=3, num_noises=3, class_embedding=embedding
    )


def heads():
    table = keras.layers.Embedding(ROWS, WIDTH)
    return [head(table), head(table)], lambda layer: layer.class_embedding


def towers():
    encoder = keras.layers.Dense(WIDTH)
    features = np.random.default_rng(0).normal(size=(2, ROWS, 3))
    layers = [head(kc.FeatureEmbedding(part, encoder)) for part in features]
    return layers, lambda layer: layer.class_embedding.encoder


def answers():
    table = kc.CodeEmbedding(ROWS, WIDTH, 2, 4)
    return [kc.TopIds(table, 2), kc.TopIds(table, 3)], lambda layer: layer.table


@pytest.mark.parametrize("make", [heads, towers, answers])
def test_parts_of_two_layers(make, tmp_path):
    layers, part_of = make()
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, [layer(inputs) for layer in layers])
    loaded = load(model, tmp_path)
    one, other = (part_of(loaded.get_layer(layer.name)) for layer in layers)
    assert one is other


def test_a_table_that_comes_after_the_head(tmp_path):
    table = keras.layers.Embedding(ROWS, WIDTH, name="table")
    features, ids = keras.Input((WIDTH,)), keras.Input((), dtype="int32")
    classes = head(table)(features)
    vectors = classes
    for _ in range(2):
        vectors = keras.layers.Dense(WIDTH)(vectors)
    looked_up = keras.layers.Dense(WIDTH)(table(ids))
    model = keras.Model([features, ids], [classes, vectors + looked_up])
    names = [layer.name for layer in model.layers]
    found = [type(layer) for layer in model.layers]
    assert found.index(kc.CANESoftmax) < names.index("table")
    loaded = load(model, tmp_path)
    head_of_loaded = loaded.layers[found.index(kc.CANESoftmax)]
    assert head_of_loaded.class_embedding is loaded.get_layer("table")


def load(model, folder):
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    for one, other in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    return loaded
