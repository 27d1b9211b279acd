"""Weights of a file that fit some layers of a model, and not others."""

import keras
import numpy as np
import pytest
from errors import warned

import keras_compembed as kc
from keras_compembed.classes import ClassTree

LAYERS = {
    "codes-follow": lambda rows: kc.CodeEmbedding(
        rows, 6, 3, 4, codes="follow"
    ),
    "anchors-sparse": lambda rows: kc.ANTEmbedding(
        rows, 6, 5, transform="sparse"
    ),
    "vocabulary": lambda rows: kc.PrunedVocabularyEmbedding(rows, 6, rows // 2),
    "classes-tree": lambda rows: kc.CANESoftmax(
        rows,
        sampling=kc.Sampling(
            kc.classes.BeamTree(ClassTree.random(rows, branching=3, seed=0)),
            num_candidates=5,
        ),
    ),
}


def model_of(name, rows):
    layer = LAYERS[name](rows)
    if name.startswith("classes"):
        inputs = keras.Input((6,))
        outputs = layer(keras.layers.Dense(6, name="other")(inputs))
    else:
        inputs = keras.Input((3,), dtype="int32")
        outputs = keras.layers.Dense(2, name="other")(layer(inputs))
    model = keras.Model(inputs, outputs)
    for weight in layer.trainable_weights:
        weight.assign(weight + 0.1 * rows)
    return model, layer


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_loaded_whole_or_not_at_all(name, tmp_path):
    path = tmp_path / "model.weights.h5"
    small, _ = model_of(name, 20)
    small.save_weights(path)
    large, layer = model_of(name, 30)
    before = layer.get_weights()
    with warned("could not be loaded"):
        large.load_weights(path, skip_mismatch=True)
    for weight, old in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(weight, old, weight.path)
    other = [model.get_layer("other").get_weights() for model in (small, large)]
    np.testing.assert_array_equal(other[0][0], other[1][0])
