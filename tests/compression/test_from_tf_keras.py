"""Models of Keras 2, with wrappers of others, in Keras 3 and in files."""

import children
import keras
import keras_2
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5"),
]
tf_keras = pytest.importorskip("tf_keras")
LAYERS = tf_keras.layers


def ids_input(length=6, name=None):
    return LAYERS.Input((length,), dtype="int32", name=name)


def two_inputs():
    words, others = ids_input(name="words"), ids_input(name="others")
    table = LAYERS.Embedding(50, 8, mask_zero=True)
    mean = LAYERS.GlobalAveragePooling1D()(table(words))
    last = LAYERS.LSTM(8)(table(others))
    both = LAYERS.Concatenate()([mean, last])
    outputs = {"dot": LAYERS.Dot(1)([mean, last]), "all": LAYERS.Dense(3)(both)}
    return tf_keras.Model([words, others], outputs)


def dict_of_inputs():
    inputs = {"ids": ids_input(name="ids"), "x": LAYERS.Input((3,), name="x")}
    rows = LAYERS.Flatten()(LAYERS.Embedding(50, 4)(inputs["ids"]))
    both = LAYERS.Concatenate()([rows, inputs["x"]])
    return tf_keras.Model(inputs, LAYERS.Dense(2)(both))


def nested():
    ids, rows = ids_input(), LAYERS.Input((6, 4))
    table = tf_keras.Sequential(
        [
            LAYERS.Embedding(50, 8),
            LAYERS.Conv1D(4, 3, padding="same", activation="relu"),
            LAYERS.BatchNormalization(),
        ]
    )
    pair = tf_keras.Model(rows, [LAYERS.Dense(4)(rows), LAYERS.Dense(5)(rows)])
    first, second = pair(table(ids))
    again, _ = pair(first)
    return tf_keras.Model(ids, [again, LAYERS.Flatten()(second)])


def sequence_to_sequence():
    source, target = ids_input(None), ids_input(None)
    rows = LAYERS.Embedding(30, 8)(source)
    _, *states = LAYERS.LSTM(8, return_state=True)(rows)
    rows = LAYERS.Embedding(40, 8)(target)
    decoder = LAYERS.LSTM(8, return_sequences=True)
    rows = decoder(rows, initial_state=states)
    scores = LAYERS.TimeDistributed(LAYERS.Dense(40))(rows)
    return tf_keras.Model([source, target], scores)


def attention():
    ids = ids_input()
    rows = LAYERS.Embedding(50, 8)(ids)
    seen, scores = LAYERS.MultiHeadAttention(2, 4)(
        rows, rows, return_attention_scores=True
    )
    rows = LAYERS.LayerNormalization()(LAYERS.Add()([rows, seen]))
    return tf_keras.Model(ids, [LAYERS.Attention()([rows, seen]), scores])


def many_kinds():
    """With settings that Keras 3 does not take."""
    ids = ids_input(12)
    x = LAYERS.Embedding(50, 8, input_length=12)(ids)
    x = LAYERS.SpatialDropout1D(0.2)(x)
    x = LAYERS.SeparableConv1D(6, 3)(x)
    x = LAYERS.PReLU()(LAYERS.LeakyReLU(0.1)(x))
    x = LAYERS.Conv1DTranspose(5, 2)(x)
    x = LAYERS.Bidirectional(LAYERS.GRU(4, return_sequences=True))(x)
    cells = [LAYERS.LSTMCell(4), LAYERS.GRUCell(3)]
    x = LAYERS.RNN(LAYERS.StackedRNNCells(cells), return_sequences=True)(x)
    # Weights of it come in another order in Keras 3.
    inner = [LAYERS.Input((3,)), LAYERS.BatchNormalization(), LAYERS.Dense(3)]
    x = LAYERS.TimeDistributed(tf_keras.Sequential(inner))(x)
    x = LAYERS.SimpleRNN(3, return_sequences=True)(x)
    x = LAYERS.DepthwiseConv2D((2, 1))(LAYERS.Reshape((11, 1, 3))(x))
    return tf_keras.Model(ids, LAYERS.Conv2DTranspose(2, (1, 2))(x))


def frozen():
    model = many_kinds()
    model.trainable = False
    return model


def float_ids():
    """As Keras makes inputs of a model that begins with an Embedding."""
    table = LAYERS.Embedding(50, 8, input_length=6)
    return tf_keras.Sequential([table, LAYERS.Flatten(), LAYERS.Dense(1)])


def half():
    policy = {"dtype": "mixed_float16"}
    mean = LAYERS.GlobalAveragePooling1D(**policy)
    layers = [LAYERS.Embedding(50, 8, **policy), mean, LAYERS.Dense(2)]
    return tf_keras.Sequential([ids_input(), *layers])


def texts():
    words = LAYERS.TextVectorization(20, output_sequence_length=5)
    words.adapt(["the cat sat", "a dog"])
    lookup = LAYERS.StringLookup(vocabulary=["x", "y", "z"])
    shares = LAYERS.TextVectorization(20, ngrams=2, output_mode="tf_idf")
    shares.adapt(["the cat sat", "a dog", "a cat"])
    numbers = LAYERS.Normalization()
    numbers.adapt(np.random.default_rng(0).normal(3, 2, (20, 3)))
    layers = words, lookup, numbers
    inputs = [
        LAYERS.Input((1,), dtype="string"),
        LAYERS.Input((2,), dtype="string"),
        LAYERS.Input((3,)),
    ]
    outputs = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    given = LAYERS.Normalization(mean=np.ones(3), variance=[4.0, 1.0, 1.0])
    outputs += [shares(inputs[0])]
    outputs += [given(inputs[2]), LAYERS.Discretization([0.0, 1])(inputs[2])]
    return tf_keras.Model(inputs, outputs)


MODELS = (
    two_inputs,
    dict_of_inputs,
    nested,
    sequence_to_sequence,
    attention,
    many_kinds,
    frozen,
    float_ids,
    half,
    texts,
)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_models(make, tmp_path):
    """`from_tf_keras` compares outputs; here, what it does not look at."""
    model = make()
    rng = np.random.default_rng(0)
    for layer in model._flatten_layers():
        for weight in layer._trainable_weights:
            weight.assign(rng.normal(0, 0.2, weight.shape))
    new = kc.from_tf_keras(model)
    assert isinstance(new, keras.Model)
    assert [x.name for x in model.layers if "input" not in x.name] == [
        x.name for x in new.layers if "input" not in x.name
    ]
    kept = len(new.trainable_weights), len(new.non_trainable_weights)
    assert kept[0] == len(model.trainable_weights)
    new.save(tmp_path / "new.keras")
    again = keras.saving.load_model(tmp_path / "new.keras")
    for weight, same in zip(new.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same)
    path = tmp_path / ("old.keras" if make is texts else "old.h5")
    model.save(path)
    again = kc.from_tf_keras(path)
    for weight, same in zip(new.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same)


class Times(LAYERS.Layer):
    """With a setting whose name layers of Keras have."""

    def __init__(self, vocabulary_size, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size

    def call(self, inputs):
        return self.vocabulary_size * inputs

    def get_config(self):
        own = {"vocabulary_size": self.vocabulary_size}
        return {**super().get_config(), **own}


class NewTimes(keras.layers.Layer):
    def __init__(self, vocabulary_size, **kwargs):
        super().__init__(**kwargs)
        self.factor = vocabulary_size

    def call(self, inputs):
        return self.factor * inputs


class Another(NewTimes):
    def call(self, inputs):
        return inputs


def test_own_classes():
    model = tf_keras.Sequential([ids_input(), LAYERS.Embedding(9, 2)])
    model.add(Times(3))
    with refused("model_or_path", "'times' (Times)"):
        kc.from_tf_keras(model)
    with keras.saving.custom_object_scope({"Times": NewTimes}):
        new = kc.from_tf_keras(model)
    ids = np.arange(6)[None]
    np.testing.assert_array_equal(new(ids), model(ids))
    with keras.saving.custom_object_scope({"Times": Another}):
        with pytest.raises(ValueError, match="something else"):
            kc.from_tf_keras(model)


def test_functions_of_texts():
    words = LAYERS.TextVectorization(
        20, standardize=tf.strings.upper, split=lambda x: tf.strings.split(x)
    )
    words.adapt(["the cat", "a dog"])
    model = tf_keras.Sequential([LAYERS.Input((1,), dtype="string"), words])
    texts = tf.constant([["A Cat"]])
    np.testing.assert_array_equal(kc.from_tf_keras(model)(texts), model(texts))


def test_ids_are_integers():
    """Files that take them as floats are of no use to an app."""
    inputs = LAYERS.Input((1,)), LAYERS.Input((1,))
    table = LAYERS.Embedding(9, 2)
    outputs = [table(inputs[0]), table(inputs[1]), LAYERS.Dense(2)(inputs[1])]
    model = tf_keras.Model(inputs, outputs)
    new = kc.from_tf_keras(model)
    assert [x.dtype for x in new.inputs] == ["int32", "float32"]
    ids = [np.array([[3.0]]), np.array([[4.0]])]
    for one, other in zip(new(ids), model(ids), strict=True):
        np.testing.assert_array_equal(one, other)


class Subclassed(tf_keras.Model):
    def call(self, inputs):
        return inputs


def test_what_is_refused(tmp_path):
    inputs = LAYERS.Input((6, 4))
    x = LAYERS.LSTM(4, time_major=True)(inputs)
    x = LAYERS.Dense(4, activation="hard_sigmoid")(x)
    model = tf_keras.Model(inputs, LAYERS.Lambda(lambda y: y)(x + x))
    with pytest.raises(ValueError) as caught:
        kc.from_tf_keras(model)
    for word in ("time_major", "hard_sigmoid", "Lambda", "TFOpLambda"):
        assert word in str(caught.value)
    model.save(tmp_path / "lambda.h5")
    model.save_weights(tmp_path / "weights.h5")
    new = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    new.save(tmp_path / "new.keras")
    (tmp_path / "empty.h5").touch()
    for name, version in {
        "lambda.h5": "2.",
        "weights.h5": "2.",
        "new.keras": keras.__version__,
        "empty.h5": None,
    }.items():
        with refused("model_or_path", f"{name}', of Keras {version}"):
            kc.from_tf_keras(tmp_path / name)
    for path in (str(tmp_path / "none.h5"), str(tmp_path)):
        with refused("model_or_path", path, FileNotFoundError):
            kc.from_tf_keras(path)
    model = Subclassed()
    model(np.zeros((1, 2)))
    with refused("model_or_path", "'subclassed' (Subclassed)"):
        kc.from_tf_keras(model)
    for other in (3, keras.Sequential()):
        with refused("model_or_path", other, TypeError):
            kc.from_tf_keras(other)


# tensorflow-model-optimization makes `tf.keras` Keras 2 in its process.
TAKEN_OVER = """
import os, sys, warnings
import numpy as np
import tensorflow_model_optimization as tfmot
import tf_keras
import keras_2
import keras_compembed as kc

model = getattr(keras_2, sys.argv[1])(tf_keras, tfmot)
model.save("old.h5")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    new, again = kc.from_tf_keras(model), kc.from_tf_keras("old.h5")
for one, other in zip(new.weights, again.weights):
    np.testing.assert_array_equal(one, other)
inputs = np.random.default_rng(1).uniform(0, 2, (4, *model.input_shape[1:]))
change = np.abs(model(inputs) - new(inputs)).max() / np.abs(new(inputs)).max()
said = {str(each.message) for each in said if "range" in str(each.message)}
print([layer.name for layer in new.layers], "changed", change, *said)
"""
COMPRESSED = """
old = new.get_layer("words").get_weights()[0]
small = kc.compress_model(new, verbose=0)
layer = small.get_layer("words")
if sys.argv[1] != "quantized":
    np.testing.assert_array_equal(layer.embeddings, old)
kc.export_litert(small, "small.tflite", verbose=0)
ids, _ = keras_2.data()
outputs = kc.export.LiteRTModel("small.tflite").predict(ids)
np.testing.assert_allclose(outputs, new(ids), atol=EPSILON)
print(type(layer).__name__, os.path.getsize("small.tflite"))
"""


def in_keras_2(kind, folder, code=TAKEN_OVER):
    keras_2.needs_tfmot()
    done = children.run_python(code, kind, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "kind, layer, most_bytes, epsilon",
    [
        # 2,000 x 16 numbers: 40 % of them with a byte for the column, or all
        # of them as half a byte; 128,000 as they are.
        ("pruned", "SparseEmbedding", 12_800 * 5 + 14_000, 0),
        ("clustered", "CodeEmbedding", 16_000 + 8_000, 1e-6),
        ("quantized", "CodeEmbedding", 60_000, 0.2),
    ],
)
def test_models_of_tfmot(kind, layer, most_bytes, epsilon, tmp_path):
    code = TAKEN_OVER + COMPRESSED.replace("EPSILON", str(epsilon))
    said = in_keras_2(kind, tmp_path, code)
    assert "'words', 'mean', 'hidden', 'scores'] changed" in said
    assert ("learned are gone" in said) == (kind == "quantized")
    change = float(said.partition("changed ")[2].split()[0])
    assert (change == 0) == (kind != "quantized")
    found, size = said.split()[-2:]
    assert found == layer
    assert int(size) < most_bytes


def test_quantized_convolutions(tmp_path):
    said = in_keras_2("convolutions", tmp_path)
    assert "'conv2d', 'batch_normalization', 're_lu'" in said
    change = float(said.partition("changed ")[2].split()[0])
    assert 0 < change < 0.5
