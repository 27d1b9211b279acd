"""What `compress_model` makes of the layers that it does not replace."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import NeverTrained
from compressing import check_rows
from compressing import codes
from compressing import compress
from model_zoo import TiedDense

import keras_compembed as kc

layers = keras.layers
# `pytest.warns` gives again what Keras warns of, as if it came from here.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
IDS = np.arange(10).reshape(2, 5)


def words_model(*parts):
    """A functional model of an Embedding and one layer after another."""
    inputs = x = keras.Input((5,), dtype="int32")
    for part in (layers.Embedding(60, 8, name="words"), *parts):
        x = part(x)
    return keras.Model(inputs, x)


# State.


def test_state_is_copied_and_stays():
    inputs = keras.Input(batch_shape=(2, 5), dtype="int32")
    lstm = layers.LSTM(4, stateful=True, return_sequences=True, name="lstm")
    x = lstm(layers.Embedding(60, 8)(inputs))
    x = layers.BatchNormalization()(x)
    model = keras.Model(inputs, layers.Bidirectional(layers.LSTM(3))(x))
    for variable in model.variables:
        if "float" in variable.dtype:
            variable.assign(np.random.default_rng(0).random(variable.shape))
    # The state changes.
    model(IDS, training=True)

    def read(model):
        states = model.get_layer("lstm").states
        variables = [x for layer in model.layers[2:] for x in layer.weights]
        return [x.numpy() for x in (*states, *variables)]

    before = read(model)
    assert before[0].any()
    small = compress(model)
    for holder in (model, small):
        for value, same in zip(read(holder), before, strict=True):
            np.testing.assert_array_equal(value, same)


def test_vocabularies_means_and_inputs_of_other_kinds():
    texts = layers.TextVectorization(output_sequence_length=5, name="texts")
    texts.adapt(["a few words", "and a few more"])
    lookup = layers.StringLookup(name="lookup")
    lookup.adapt(np.array(["a", "b", "b", "c"] * 3))
    means = layers.Normalization(name="means")
    means.adapt(np.random.default_rng(0).normal(3, 2, size=(50, 8)))
    inputs = {
        "sentence": keras.Input((), dtype="string", name="sentence"),
        "word": keras.Input((5,), dtype="string", name="word"),
        "bags": keras.Input((9,), sparse=True, name="bags"),
        "more": keras.Input((8,), optional=True, name="more"),
    }
    words = layers.Embedding(60, 8, name="words")
    x = words(texts(inputs["sentence"])) + words(lookup(inputs["word"]))
    x = layers.GlobalAveragePooling1D()(x) + layers.Dense(8)(inputs["bags"])
    small = compress(keras.Model(inputs, x + means(inputs["more"])))
    assert small.get_layer("bags").sparse and small.get_layer("more").optional
    for layer in (texts, lookup):
        copy = small.get_layer(layer.name)
        assert copy.get_vocabulary() == layer.get_vocabulary()
    rows = np.ones((1, 8))
    copy = small.get_layer("means")
    np.testing.assert_array_equal(copy(rows), means(rows))


def test_quantized_layers_stay_quantized():
    model = words_model(layers.Dense(4, name="dense"))
    model.get_layer("dense").quantize("int8")
    small = compress(model)
    assert small.get_layer("dense").quantization_mode == "int8"
    check_rows(model, small, IDS)


# Configs.


class Shift(layers.Layer):
    """Keras makes up a config for it, without its name."""

    def __init__(self, **options):
        super().__init__(**options)

    def build(self, input_shape):
        self.shift = self.add_weight(shape=(8,), name="shift")

    def call(self, inputs):
        return keras.ops.sin(inputs + self.shift)


class ShiftWithoutOptions(Shift):
    """Its config has arguments that it does not take."""

    def __init__(self):
        super().__init__()


@pytest.mark.parametrize("cls", [Shift, ShiftWithoutOptions])
def test_layers_whose_config_has_no_name(cls):
    keras.utils.clear_session()
    # Made in another order than they are called in.
    first, second, third = cls(), cls(), cls()
    model = words_model(third, first, second)
    for number, layer in enumerate((first, second, third)):
        layer.set_weights([np.full(8, 0.3 + number)])
    keras.utils.clear_session()
    small = compress(model)
    assert [x.name for x in small.layers] == [x.name for x in model.layers]
    check_rows(model, small, IDS)


def test_policy_of_a_class_whose_config_has_none():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = words_model(Shift())
    finally:
        keras.config.set_dtype_policy("float32")
    assert compress(model).layers[-1].compute_dtype == "bfloat16"


def wave(x):
    return keras.ops.sin(x)


def test_functions_that_are_not_registered():
    model = words_model(
        layers.Lambda(lambda x, factor: factor * x, arguments={"factor": 3.0}),
        layers.Dense(8, activation=wave),
        layers.Dense(8, activation=lambda x: keras.ops.cos(x)),
        layers.Lambda(wave, mask=lambda inputs, mask: None),
    )
    check_rows(model, compress(model), IDS)


# Ties.


def test_tie_to_a_layer_is_kept():
    words = layers.Embedding(60, 8, name="words")
    inputs = keras.Input((5,), dtype="int32")
    other = layers.Embedding(70, 8, name="other")(inputs)
    logits = TiedDense(words, name="logits")
    small = compress(keras.Model(inputs, logits(words(inputs) + other)))
    copied = small.get_layer("words")
    assert isinstance(copied, kc.CodeEmbedding)
    assert copied is small.get_layer("logits").embedding
    assert copied is small.get_layer("logits").also
    assert small.count_params() == (60 + 70) * 2 + 2 * 4 * 8 * 8


# The copy is compared with the model.


class Power(layers.Layer):
    """Its config lacks what is set later."""

    exponent = 1.0

    def call(self, inputs):
        return keras.ops.abs(inputs) ** self.exponent


class OnlyThree(layers.Layer):
    def call(self, inputs):
        tf.debugging.assert_equal(tf.reduce_max(inputs), 3.0)
        return inputs


def fields_of_a_table():
    """Three fields of 20 ids, each from a place of its own in one table."""
    ids = keras.Input((3,), dtype="int32")
    return ids, layers.Embedding(60, 8)(ids + np.array([0, 20, 40], "int32"))


def test_inputs_are_made_up_until_a_model_takes_them(tmp_path):
    ids, vectors = fields_of_a_table()
    power = Power(name="power")
    power.exponent = 2.0
    # Else a warning would say that nothing was compared.
    with pytest.raises(ValueError, match="'power'.*exponent=2.0"):
        compress(keras.Model(ids, power(vectors)))
    model = keras.Model(ids, layers.Dense(2)(vectors))
    for number, each in enumerate((model, compress(model))):
        made = kc.export_litert(
            each, tmp_path / f"{number}.tflite", verbose=0, quantize=None
        )
        assert made.max_error < 1e-5


def test_inputs_that_are_not_taken():
    inputs = keras.Input((5,), dtype="int32")
    numbers = layers.Rescaling(1.0)(inputs)
    outputs = layers.Embedding(60, 8)(inputs), OnlyThree()(numbers)
    model = keras.Model(inputs, outputs)
    with pytest.warns(UserWarning, match="`sample_inputs`"):
        compress(model)
    compress(model, sample_inputs=np.array([[1, 2, 3, 0, 0]]))
    with pytest.raises(ValueError, match="`sample_inputs`"):
        compress(model, codes(learner=NeverTrained), sample_inputs=IDS)


class Noise(layers.Layer):
    def call(self, inputs):
        return inputs + tf.random.normal(tf.shape(inputs))


def test_layers_that_give_something_else_each_time():
    with pytest.warns(UserWarning, match="from call to call"):
        compress(words_model(Noise()))


# What cannot be copied.


class NoConfig(layers.Layer):
    def __init__(self, function):
        super().__init__(name="no_config")
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


def without_config():
    return words_model(keras.Sequential([NoConfig(wave)], name="tower"))


class GrowsInConfig(layers.Dense):
    def get_config(self):
        return {**super().get_config(), "units": self.units + 1}


class HoldsVariable(layers.Layer):
    """Reads the table of a layer that it does not hold."""

    table = None

    def build(self, input_shape):
        self.kernel = self.table
        if self.table is None:
            self.kernel = self.add_weight(shape=(60, 8))

    def call(self, inputs):
        return inputs @ keras.ops.transpose(self.kernel)


def with_its_variable():
    model, logits = words_model(), HoldsVariable(name="logits")
    logits.table = model.get_layer("words").weights[0]
    other = layers.Embedding(70, 8)(model.input)
    return keras.Model(model.input, logits(model.output + other))


class OwnConstructor(keras.Model):
    def __init__(self, rows):
        inputs = keras.Input((5,), dtype="int32")
        outputs = layers.Embedding(rows, 8, name="words")(inputs)
        super().__init__(inputs, outputs, name="own")


def in_a_function():
    def logits(x):
        table = tf.convert_to_tensor(model.get_layer("words").embeddings)
        return tf.matmul(x, table, transpose_b=True)

    model = words_model()
    outputs = layers.Lambda(logits, name="logits")(model.output)
    return keras.Model(model.input, outputs)


@pytest.mark.parametrize(
    "make, names",
    [
        (without_config, ["'tower/no_config'"]),
        (lambda: OwnConstructor(60), ["'own'", '"rows": self.rows']),
        (in_a_function, ["'words/embeddings'"]),
        (lambda: words_model(GrowsInConfig(4, name="more")), ["'more'"]),
        (with_its_variable, ["variable shared by layers"]),
    ],
)
def test_what_cannot_be_copied_is_named_first(make, names):
    with pytest.raises(ValueError) as caught:
        compress(make(), codes(learner=NeverTrained))
    for name in names:
        assert name in str(caught.value)
