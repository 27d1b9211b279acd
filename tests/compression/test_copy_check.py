import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.compression.copy_check import check_copy
from keras_compembed.compression.copy_check import made_up_inputs
from keras_compembed.compression.model_copy import copy_model

layers = keras.layers
# `pytest.warns` gives again what Keras warns of, as if it came from here.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


class Power(layers.Layer):
    """Its config lacks what is set later."""

    exponent = 1.0

    def call(self, inputs):
        return inputs**self.exponent


class OnlyShort(layers.Layer):
    def call(self, inputs):
        tf.debugging.assert_less(tf.shape(inputs)[1], 4)
        return inputs


class Noise(layers.Layer):
    def __init__(self, drawn, **kwargs):
        super().__init__(**kwargs)
        self.drawn = drawn

    def build(self, input_shape):
        self.generator = keras.random.SeedGenerator()

    def call(self, inputs):
        if self.drawn == "keras":
            shape = keras.ops.shape(inputs)
            return inputs + keras.random.normal(shape, seed=self.generator)
        return inputs + tf.random.normal(tf.shape(inputs))


def words_model(*parts):
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(60, 8, name="words"),
            *parts,
        ]
    )


def check(model, sample_inputs=None):
    copy, pairs = copy_model(model, {})
    check_copy(model, copy, pairs, sample_inputs)
    return copy


def test_copy_is_the_same():
    mask = layers.Embedding(50, 8, mask_zero=True)
    model = words_model(layers.LSTM(4, return_sequences=True), layers.LSTM(3))
    check(model)
    check(keras.Sequential([keras.Input((5,)), mask, layers.LSTM(3)]))


def test_layer_that_differs_is_named():
    power = Power(name="power")
    tower = keras.Sequential([power], name="tower")
    model = words_model(layers.Dense(4), tower, layers.Dense(2))
    check(model)
    power.exponent = 2.0
    with pytest.raises(ValueError, match=r"is the layer 'tower/power' \(Pow"):
        check(model)


def test_layer_that_differs_is_found_behind_others():
    # Their outputs do not show it.
    power = Power(name="power")
    model = words_model(power, layers.Lambda(keras.ops.zeros_like))
    power.exponent = 3.0
    with pytest.raises(ValueError, match="the layer 'power'"):
        check(model)


def test_weights_that_differ_are_found():
    model = words_model(layers.Dense(4, name="dense"))
    copy, pairs = copy_model(model, {})
    kernel = copy.get_layer("dense").kernel
    kernel.assign(1.01 * kernel)
    with pytest.raises(ValueError, match="the layer 'dense'"):
        check_copy(model, copy, pairs)


def test_inputs_that_are_not_taken():
    model = words_model(OnlyShort())
    with pytest.warns(UserWarning, match="Pass `sample_inputs`"):
        check(model)
    check(model, np.array([[1, 2, 3]]))
    with pytest.raises(ValueError, match="`sample_inputs` must be inputs"):
        check(model, np.array([[1, 2, 3, 4]]))


def test_sample_inputs_in_a_structure():
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in "ab"
    }
    words = layers.Embedding(60, 8)
    power = Power(name="power")
    outputs = [power(words(inputs["a"])), words(inputs["b"])]
    model = keras.Model(inputs, outputs)
    power.exponent = 2.0
    sample = {"a": np.ones((2, 3)), "b": np.ones((2, 4))}
    with pytest.raises(ValueError, match="the layer 'power'"):
        check(model, sample)


def test_random_layers():
    # The state of the generator is copied.
    check(words_model(Noise("keras"), layers.Dropout(0.5)))
    with pytest.warns(UserWarning, match="something else each time"):
        check(words_model(Noise("tensorflow")))


def test_states_stay_as_they_are():
    inputs = keras.Input(batch_shape=(2, 5), dtype="int32")
    lstm = layers.LSTM(4, stateful=True, name="lstm")
    x = lstm(layers.Embedding(60, 8)(inputs))
    model = keras.Model(inputs, Noise("keras")(x))
    model(np.ones((2, 5)))

    def read(model):
        states = model.get_layer("lstm").states
        return [x.numpy() for x in (*states, *model.variables)]

    before = read(model)
    assert before[0].any()
    copy = check(model)
    for holder in (model, copy):
        for value, same in zip(read(holder), before, strict=True):
            np.testing.assert_array_equal(value, same)
    assert all("call" not in vars(layer) for layer in model.layers)


def test_variable_of_the_model_in_a_function():
    words = layers.Embedding(60, 8, name="words")
    inputs = keras.Input((5,), dtype="int32")
    x = words(inputs)

    def logits(x):
        table = tf.convert_to_tensor(words.embeddings)
        return tf.matmul(x, table, transpose_b=True)

    model = keras.Model(inputs, layers.Lambda(logits, name="logits")(x))
    message = "read the variable 'words/embeddings' of the model.*in 'logits'"
    with pytest.raises(ValueError, match=message):
        check(model)


def test_variable_of_the_model_in_the_graph():
    dense = layers.Dense(8, name="dense")
    inputs = keras.Input((8,))
    x = dense(inputs)
    model = keras.Model(inputs, keras.ops.matmul(x, dense.kernel))
    with pytest.raises(ValueError, match="read the variable 'dense/kernel'"):
        check(model)


def test_made_up_inputs():
    lookup = layers.StringLookup(vocabulary=["a", "b"])
    words = keras.Input((4,), dtype="string", name="words")
    ids = keras.Input((4,), dtype="int32", name="ids")
    embedding = layers.Embedding(3, 2)
    model = keras.Model(
        {"ids": ids, "words": words}, embedding(ids) + embedding(lookup(words))
    )
    first, second = made_up_inputs(model)
    assert set(first["words"].ravel()) <= {"[UNK]", "a", "b"}
    assert first["ids"].max() < 3
    assert not second["ids"][:, -1].any()
    model(first)
