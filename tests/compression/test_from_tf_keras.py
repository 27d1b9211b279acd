"""Models of Keras 2, with wrappers of others, in Keras 3 and in files."""

import children
import keras
import keras_2
import numpy as np
import pytest
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
    inputs = {name: ids_input(name=name) for name in ("words", "others")}
    table = LAYERS.Embedding(50, 8, mask_zero=True)
    mean = LAYERS.GlobalAveragePooling1D()(table(inputs["words"]))
    last = LAYERS.LSTM(8)(table(inputs["others"]))
    both = LAYERS.Concatenate()([mean, last])
    outputs = {"dot": LAYERS.Dot(1)([mean, last]), "all": LAYERS.Dense(3)(both)}
    return tf_keras.Model(inputs, outputs)


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


def many_kinds():
    """With settings that Keras 3 does not take."""
    ids = ids_input(12)
    x = LAYERS.Embedding(50, 8, input_length=12)(ids)
    x = LAYERS.SpatialDropout1D(0.2)(x)
    x = LAYERS.SeparableConv1D(6, 3)(x)
    x = LAYERS.PReLU()(LAYERS.LeakyReLU(0.1)(x))
    x = LAYERS.Conv1DTranspose(5, 2)(x)
    x = LAYERS.MultiHeadAttention(2, 4)(x, x)
    x = LAYERS.Bidirectional(LAYERS.GRU(4, return_sequences=True))(x)
    cells = [LAYERS.LSTMCell(4), LAYERS.GRUCell(3)]
    x = LAYERS.RNN(LAYERS.StackedRNNCells(cells), return_sequences=True)(x)
    # Weights of it come in another order in Keras 3.
    inner = [LAYERS.Input((3,)), LAYERS.BatchNormalization(), LAYERS.Dense(3)]
    x = LAYERS.TimeDistributed(tf_keras.Sequential(inner))(x)
    x = LAYERS.SimpleRNN(3, return_sequences=True)(x)
    x = LAYERS.DepthwiseConv2D((2, 1))(LAYERS.Reshape((11, 1, 3))(x))
    return tf_keras.Model(ids, LAYERS.Conv2DTranspose(2, (1, 2))(x))


def texts():
    words = LAYERS.TextVectorization(20, output_sequence_length=5)
    words.adapt(["the cat sat", "a dog"])
    lookup = LAYERS.StringLookup(vocabulary=["x", "y", "z"])
    shares = LAYERS.TextVectorization(20, ngrams=2, output_mode="tf_idf")
    shares.adapt(["the cat sat", "a dog", "a cat"])
    numbers = LAYERS.Normalization()
    numbers.adapt(np.random.default_rng(0).normal(3, 2, (20, 3)))
    given = LAYERS.Normalization(mean=np.ones(3), variance=[4.0, 1.0, 1.0])
    text, rows = LAYERS.Input((1,), dtype="string"), LAYERS.Input((3,))
    outputs = [layer(text) for layer in (words, lookup, shares)]
    outputs += [layer(rows) for layer in (numbers, given)]
    outputs += [LAYERS.Discretization([0.0, 1])(rows)]
    return tf_keras.Model([text, rows], outputs)


@pytest.mark.parametrize(
    "make", [two_inputs, nested, sequence_to_sequence, many_kinds, texts]
)
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
    assert len(new.trainable_weights) == len(model.trainable_weights)
    new.save(tmp_path / "new.keras")
    again = keras.saving.load_model(tmp_path / "new.keras")
    for weight, same in zip(new.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same)
    path = tmp_path / ("old.keras" if make is texts else "old.h5")
    model.save(path)
    again = kc.from_tf_keras(path)
    for weight, same in zip(new.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same)


def times(base):
    """A class of Keras 2 or 3, with a setting that layers of Keras have."""

    class Times(base):
        def __init__(self, vocabulary_size, **kwargs):
            super().__init__(**kwargs)
            self.vocabulary_size = vocabulary_size

        def call(self, inputs):
            return self.vocabulary_size * inputs

        def get_config(self):
            own = {"vocabulary_size": self.vocabulary_size}
            return {**super().get_config(), **own}

    return Times


def test_own_classes():
    model = tf_keras.Sequential([ids_input(), LAYERS.Embedding(9, 2)])
    model.add(times(LAYERS.Layer)(3))
    with refused("model_or_path", "'times' (Times)"):
        kc.from_tf_keras(model)
    new_times = times(keras.layers.Layer)
    with keras.saving.custom_object_scope({"Times": new_times}):
        new = kc.from_tf_keras(model)
    ids = np.arange(6)[None]
    np.testing.assert_array_equal(new(ids), model(ids))


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
    for name, version in {
        "lambda.h5": "2.",
        "weights.h5": "2.",
        "new.keras": keras.__version__,
    }.items():
        with refused("model_or_path", f"{name}', of Keras {version}"):
            kc.from_tf_keras(tmp_path / name)
    with refused("model_or_path", error=TypeError):
        kc.from_tf_keras(new)


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
np.testing.assert_array_equal(layer.embeddings, old)
kc.export_litert(small, "small.tflite", quantize=None, verbose=0)
ids, _ = keras_2.data()
outputs = kc.export.LiteRTModel("small.tflite").predict(ids)
np.testing.assert_allclose(outputs, new(ids), rtol=1e-6)
print(type(layer).__name__, os.path.getsize("small.tflite"))
"""


def in_keras_2(kind, folder, code=TAKEN_OVER):
    keras_2.needs_tfmot()
    done = children.run_python(code, kind, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pruned_model(tmp_path):
    said = in_keras_2("pruned", tmp_path, TAKEN_OVER + COMPRESSED)
    assert "'words', 'mean', 'hidden', 'scores'] changed 0.0" in said
    found, size = said.split()[-2:]
    assert found == "SparseEmbedding"
    # 2,000 x 16 numbers: 40 % of them with a byte for the column.
    assert int(size) < 12_800 * 5 + 14_000


def test_quantized_convolutions(tmp_path):
    said = in_keras_2("convolutions", tmp_path)
    assert "'conv2d', 'batch_normalization', 're_lu'" in said
    assert "learned ranges are lost" in said
    change = float(said.partition("changed ")[2].split()[0])
    assert 0 < change < 0.5
