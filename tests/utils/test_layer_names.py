import keras

from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.layer_names import named_layers

layers = keras.layers


def tower(name, *parts):
    return keras.Sequential([keras.Input((None,)), *parts], name=name)


def test_names_and_paths():
    shared = layers.Embedding(3, 2, name="shared")
    towers = [
        tower(name, layers.Embedding(3, 2, name="words"), layers.Dense(2))
        for name in ("a", "b")
    ]
    inputs = keras.Input((None,))
    outputs = [part(inputs) for part in (*towers, shared)]
    model = keras.Model(inputs, layers.Add()(outputs))
    named = named_layers(model, layers.Embedding)
    assert named == {
        "a/words": towers[0].layers[0],
        "b/words": towers[1].layers[0],
        "shared": shared,
    }
    assert layer_paths(model)["a"] is towers[0]


def test_layers_of_one_path_are_told_apart():
    class Holder(layers.Layer):
        def __init__(self):
            super().__init__(name="holder")
            self.parts = [layers.Embedding(3, 2, name="e") for _ in range(2)]

    holder = Holder()
    assert named_layers(holder, layers.Embedding) == {
        "e": holder.parts[0],
        "e#2": holder.parts[1],
    }


def test_a_layer_alone_has_its_name():
    layer = layers.Embedding(3, 2, name="words")
    assert named_layers(layer, layers.Embedding) == {"words": layer}
