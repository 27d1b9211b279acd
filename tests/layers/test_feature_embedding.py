"""Class vectors from a table of Keras, a tower of items, codes or anchors."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_checks import check_policy

import keras_compembed as kc
from keras_compembed import CANELoss
from keras_compembed import CANESoftmax
from keras_compembed import FeatureEmbedding
from keras_compembed import Sampling
from keras_compembed.classes import AllClasses
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequentClasses
from keras_compembed.optimizers import SparseRowOptimizer

ITEMS, WIDTH, KINDS = 40, 6, 5
COUNTS = 1 + 400 // np.arange(1, ITEMS + 1)


def item_features():
    rng = np.random.default_rng(0)
    return {
        "text": rng.normal(size=(ITEMS, 3)).astype("float32"),
        "kind": rng.integers(KINDS, size=ITEMS).astype("int32"),
    }


def make_tower():
    text = keras.Input((3,), name="text")
    kind = keras.Input((), dtype="int32", name="kind")
    kinds = keras.layers.Embedding(
        KINDS, 4, embeddings_initializer=keras.initializers.RandomNormal(seed=1)
    )
    vectors = keras.layers.Dense(
        WIDTH, "tanh", kernel_initializer=keras.initializers.GlorotUniform(1)
    )(keras.layers.Concatenate()([text, kinds(kind)]))
    vectors = keras.layers.Dropout(0.5)(vectors)
    return keras.Model({"text": text, "kind": kind}, vectors)


def make_items(kind, **kwargs):
    if kind == "table":
        start = keras.initializers.RandomNormal(stddev=0.5, seed=2)
        return keras.layers.Embedding(
            ITEMS, WIDTH, embeddings_initializer=start, **kwargs
        )
    if kind == "codes":
        codes = np.random.default_rng(0).integers(8, size=(ITEMS, 4))
        codebooks = np.random.default_rng(2).normal(size=(4, 8, WIDTH))
        return kc.CodeEmbedding(
            ITEMS, WIDTH, 4, 8, codes=codes, codebooks=codebooks, **kwargs
        )
    return FeatureEmbedding(item_features(), make_tower(), **kwargs)


def make_head(items, selector=None, **kwargs):
    return CANESoftmax(
        ITEMS,
        sampling=Sampling(
            selector or FrequentClasses(COUNTS), num_candidates=6, num_noises=5
        ),
        class_counts=COUNTS,
        class_embedding=items,
        seed=0,
        **kwargs,
    )


def tree():
    return BeamTree(ClassTree.random(ITEMS, branching=3, seed=0))


def make_model(items, head):
    """The mean of the items so far, and the item that comes next."""
    history = keras.Input((4,), dtype="int32")
    query = keras.layers.GlobalAveragePooling1D()(items(history))
    return keras.Model(history, head(query))


def examples(rows=32):
    rng = np.random.default_rng(3)
    return rng.integers(ITEMS, size=(rows, 4)), rng.integers(ITEMS, size=rows)


def trainable(items):
    """What is trained in item vectors, and these by hand from it."""
    if isinstance(items, keras.layers.Embedding):
        return items.trainable_weights, lambda: items.embeddings.value * 1.0
    if not isinstance(items, FeatureEmbedding):
        items.build()
        return items.trainable_weights, lambda: items(tf.range(ITEMS))
    features = item_features()
    kinds, dense = (
        layer for layer in items.encoder.layers if layer.trainable_weights
    )
    if isinstance(kinds, keras.layers.Dense):
        kinds, dense = dense, kinds

    def table():
        rows = tf.gather(kinds.embeddings.value * 1.0, features["kind"])
        rows = tf.concat([features["text"], rows], axis=1)
        return tf.tanh(rows @ dense.kernel.value + dense.bias.value)

    return items.trainable_weights, table


@pytest.mark.parametrize("kind", ["table", "tower", "codes"])
def test_gradients_equal_a_softmax_by_hand(kind):
    """Those of a tied table come from the input and the output at once."""
    items = make_items(kind)
    head = make_head(items, AllClasses())
    model = make_model(items, head)
    x, y = examples()
    weights, table = trainable(items)
    values = [weight.value for weight in (*weights, head.bias)]
    with tf.GradientTape() as tape:
        loss = CANELoss()(y, model(x, training=True))
    got = tape.gradient(loss, values)
    with tf.GradientTape() as tape:
        vectors = table()
        query = tf.reduce_mean(tf.gather(vectors, x), axis=1)
        logits = query @ tf.transpose(vectors) + head.bias.value
        expected_loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        )
    expected = tape.gradient(expected_loss, values)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    for one, other in zip(got, expected, strict=True):
        one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
        assert tf.reduce_max(tf.abs(other)) > 1e-3
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    model.compile(loss=CANELoss(), run_eagerly=True)
    loss = model.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    ids, _ = head.top_k(query, k=3)
    np.testing.assert_array_equal(ids, tf.math.top_k(logits, 3).indices)


@pytest.mark.filterwarnings("ignore:.*__array__.*:DeprecationWarning")
@pytest.mark.parametrize(
    "change",
    [lambda part: part.enable_lora(2), lambda part: part.quantize("int8")],
)
def test_encoders_that_change(change, tmp_path):
    """LoRA and quantization of parts of a tower count for classes too."""
    items = make_items("tower")
    model = make_model(items, make_head(items))
    x, y = examples()
    model.compile("sgd", CANELoss(), run_eagerly=True)
    before = model.evaluate(x, y, verbose=0)
    for part in items.encoder.layers:
        if part.trainable_weights:
            change(part)
    model.compile(SparseRowOptimizer("sgd"), CANELoss(), run_eagerly=True)
    model.fit(x, y, verbose=0)
    after = model.evaluate(x, y, verbose=0)
    assert after != before
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.evaluate(x, y, verbose=0), after, 1e-6)
    assert loaded.layers[-1].class_embedding in loaded.layers


def test_litert(tmp_path):
    """The file holds a table of vectors, not the tower."""
    items = make_items("tower")
    model = make_model(items, make_head(items, tree()))
    x, _ = examples()
    path = tmp_path / "model.tflite"
    report = kc.export_litert(model, path, top_k=3, verbose=0, quantize=None)
    assert not {op for op in report.ops if "CUSTOM" in op or op == "TANH"}
    expected = kc.top_k_model(model, 3)(x)
    got = kc.export.LiteRTModel(path)(x)
    np.testing.assert_array_equal(got["ids"], expected["ids"])
    np.testing.assert_allclose(
        got["probabilities"], expected["probabilities"], rtol=1e-4
    )


def test_class_0_of_a_table_with_padding():
    items = make_items("table", mask_zero=True)
    head = make_head(items)
    head.build((None, WIDTH))
    x = items.embeddings.numpy()[:1]
    bias = head.bias.numpy()
    np.testing.assert_allclose(
        head.scores.score_all(x)[0, 0], (x @ x.T)[0, 0] + bias[0], rtol=1e-5
    )


def test_layer_by_itself(tmp_path):
    items = make_items("tower", mask_zero=True)
    again = FeatureEmbedding.from_config(items.get_config())
    assert json.dumps(again.get_config()) == json.dumps(items.get_config())
    ids = np.array([[1, 0, 39], [1, 1, 7]])
    vectors = items(ids)
    assert vectors.shape == (2, 3, WIDTH)
    _, table = trainable(items)
    np.testing.assert_allclose(vectors, table().numpy()[ids], rtol=1e-5)
    # Dropout does nothing, in training either.
    np.testing.assert_array_equal(items(ids, training=True), vectors)
    np.testing.assert_array_equal(items.compute_mask(ids), ids != 0)
    logits = items(vectors, reverse=True)
    expected = vectors @ tf.transpose(table())
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    check_policy(make_items("tower"), ids, tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("features", {"a": np.zeros(3), "b": np.zeros(4)}),
        ("features", np.array([[1.0], [np.nan]])),
        ("features", np.array([1 << 40])),
        ("encoder", lambda rows: rows),
        ("encoder", keras.layers.Reshape((3, 1))),
    ],
)
def test_bad_arguments(name, value):
    arguments = {"features": np.ones((ITEMS, 3))}
    arguments["encoder"] = keras.layers.Dense(3)
    with refused(name):
        FeatureEmbedding(**arguments | {name: value})


def test_bad_layers_of_classes():
    x = np.ones((ITEMS, 3))
    items = FeatureEmbedding(x, keras.layers.Dense(WIDTH))
    items.build()
    with pytest.raises(ValueError, match="num_classes=41. Received: input_dim"):
        CANESoftmax(41, class_embedding=items)
    untied = keras.layers.ReversibleEmbedding(ITEMS, WIDTH, tie_weights=False)
    with refused("class_embedding", "tie_weights=False"):
        make_head(untied)


def test_trainable_of_the_encoder(tmp_path):
    """A layer made frozen has a frozen encoder; what is thawed then stays."""

    def trained(model):
        return [weight.path for weight in model.trainable_variables]

    layer = make_items("features", trainable=False)
    model = keras.Sequential([keras.Input((4,), dtype="int32"), layer])
    assert not trained(model)
    for thawed in (False, True):
        layer.encoder.layers[-2].trainable = thawed
        assert len(trained(model)) == 2 * thawed
        model.save(tmp_path / f"{thawed}.keras")
        loaded = keras.saving.load_model(tmp_path / f"{thawed}.keras")
        assert trained(loaded) == trained(model)
        assert not loaded.layers[-1].trainable
