"""Heads that score by cosines, divided by a temperature."""

import keras
import numpy as np
import pytest
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import build_model
from class_models import cane
from class_models import check_equal
from class_models import counts
from class_models import examples
from class_models import log_sum_exp
from class_models import loss_and_gradients
from class_models import own
from errors import refused

import keras_compembed as kc

LOSSES = {
    "cane": kc.CANELoss(),
    "sampled": kc.SampledSoftmaxLoss(num_sampled=5),
    "nce": kc.NCELoss(num_sampled=5),
    "in batch": kc.InBatchSoftmaxLoss(),
}


def unit(vectors):
    lengths = np.sqrt(np.sum(vectors**2, axis=-1, keepdims=True))
    return vectors / np.where(lengths == 0, 1, lengths)


def scores_of(features, kernel, bias, temperature):
    return unit(features) @ unit(kernel).T / temperature + bias


def head_of(temperature="learned", **kwargs):
    kwargs = {"num_candidates": 4, "num_noises": 3, **kwargs}
    return cane(
        NUM_CLASSES, class_counts=counts(), temperature=temperature, **kwargs
    )


def vectors_of(seed, rows=NUM_CLASSES):
    return np.random.default_rng(seed).normal(size=(rows, WIDTH))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_probabilities_and_gradients(jit_compile):
    """Gradients of features, vectors, biases and the temperature."""
    x, y = examples(16)
    head = head_of(selector=kc.classes.AllClasses())
    head.build((None, WIDTH))
    arrays = [x, vectors_of(1), vectors_of(2)[:, 0], np.log(0.4)]
    arrays = [np.array(each, "float64") for each in arrays]
    for weight, value in zip(head.trainable_weights, arrays[1:], strict=True):
        weight.assign(value)

    def reference(features, kernel, bias, log_temperature):
        temperature = np.exp(log_temperature)
        scores = scores_of(features, kernel, bias, temperature)
        return np.mean(log_sum_exp(scores) - own(scores, y))

    for loss in (kc.CANELoss(), kc.CANELoss("sampled")):
        check_equal(
            *loss_and_gradients(head, loss, x, y, jit_compile),
            reference,
            arrays,
        )
    scores = scores_of(*arrays[:3], 0.4)
    expected = np.exp(scores - log_sum_exp(scores)[:, None])
    np.testing.assert_allclose(head.probabilities(x), expected, rtol=1e-4)
    # To scale features twice, as for the output of the layer, is once.
    for features in (x, head(x)):
        ids, probabilities = head.top_k(features, k=3)
        order = np.argsort(-expected)[:, :3]
        np.testing.assert_array_equal(ids, order)
        best = np.take_along_axis(expected, order, axis=1)
        np.testing.assert_allclose(probabilities, best, rtol=1e-4)
    losses = kc.CANELoss()(y, head(x))
    assert float(losses) == pytest.approx(reference(*arrays), rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_equal_those_of_scaled_vectors(name):
    """Values and gradients are those of products of unit vectors."""
    x, y = examples(16)
    values, gradients = [], []
    kernel, bias = vectors_of(1), vectors_of(2)[:, 0]
    for temperature in (0.4, None):
        head = head_of(temperature)
        head.build((None, WIDTH))
        is_scaled = temperature is not None
        head.kernel.assign(kernel if is_scaled else unit(kernel))
        head.bias.assign(bias)
        features = x if is_scaled else unit(x) / 0.4
        value, found = loss_and_gradients(
            head, LOSSES[name], features.astype("float32"), y
        )
        values.append(value)
        gradients.append([np.asarray(each) for each in found])
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)

    def through(gradient, vectors, temperature=1.0):
        """The chain rule of `unit(vectors) / temperature`."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True) * temperature
        directions = unit(vectors)
        inside = np.sum(gradient * directions, axis=1, keepdims=True)
        return (gradient - inside * directions) / lengths

    of_features, of_kernel, of_bias = gradients[1]
    wanted = through(of_features, x, 0.4), through(of_kernel, kernel), of_bias
    for got, right in zip(gradients[0], wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-6)


def table_of(name):
    rows = vectors_of(5)
    rows[0] = 0
    if name == "table":
        embedding = keras.layers.Embedding(NUM_CLASSES, WIDTH)
        embedding.build(())
        embedding.embeddings.assign(rows)
        return embedding
    if name == "codes":
        return kc.CodeEmbedding.from_table(rows, 2, 4, verbose=0)
    if name == "anchors":
        return kc.ANTEmbedding(NUM_CLASSES, WIDTH, num_anchors=3)
    return kc.FeatureEmbedding(rows, keras.layers.Dense(WIDTH))


def check_model(predict, head, features, k=None, rtol=1e-4):
    """Predictions have the probabilities of NumPy."""
    table = head.class_embedding
    ids = np.arange(NUM_CLASSES)
    kernel = np.asarray(head.kernel if table is None else table(ids))
    temperature = head.temperature
    if temperature == "learned":
        temperature = np.exp(head.log_temperature.numpy())
    scores = scores_of(features, kernel, head.bias.numpy(), temperature)
    expected = np.exp(scores - log_sum_exp(scores)[:, None])
    got = predict
    if k is not None:
        order = np.argsort(-expected, axis=1)[:, :k]
        np.testing.assert_array_equal(got["ids"], order)
        expected = np.take_along_axis(expected, order, axis=1)
    got = got["probabilities"] if isinstance(got, dict) else got
    np.testing.assert_allclose(got, expected, rtol=rtol)


@pytest.mark.parametrize(
    ("name", "top_k"),
    [("own", 3), ("table", 3), ("codes", None), ("anchors", 0), ("f", 0)],
)
def test_training_copies_and_files(name, top_k, tmp_path):
    """Tied to the input; a vector of zeros has a cosine of 0."""
    rng = np.random.default_rng(0)
    x = rng.integers(NUM_CLASSES, size=(48, 2)).astype("int32")
    table = table_of("table" if name == "own" else name)
    inputs = keras.Input((2,), dtype="int32")
    hidden = keras.layers.Flatten()(table(inputs))
    hidden = keras.layers.Dense(WIDTH)(hidden)
    head = head_of(class_embedding=None if name == "own" else table)
    model = keras.Model(inputs, head(hidden))
    optimizer = kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.05))
    metrics = [kc.RecallAtK(3)]
    model.compile(optimizer, kc.CANELoss(), metrics=metrics, run_eagerly=True)
    losses = model.fit(x, x[:, 0], epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert not np.isclose(head.log_temperature.numpy(), np.log(0.07), 1e-3)

    features = keras.Model(inputs, hidden)(x).numpy()
    path = tmp_path / "model.keras"
    model.save(path)
    for each in (keras.models.load_model(path), kc.strip(model)):
        check_model(kc.top_k_model(each, 3)(x), head, features, 3)
    searched = kc.classes.fit_search(head, features, 1.0, 3, 2, verbose=0)
    ids, probabilities = searched.top_k(features, 3)
    np.testing.assert_array_equal(ids, head.top_k(features, 3)[0])
    if top_k != 0:
        path = tmp_path / "model.tflite"
        kc.export_litert(model, path, top_k=top_k, quantize=None, verbose=0)
        got = kc.export.LiteRTModel(path)(x)
        check_model(got, head, features, top_k)


def test_rows_of_codes_stay_packed_in_files(tmp_path):
    """Files with probabilities of all classes have no table."""
    rng = np.random.default_rng(0)
    codes = rng.integers(16, size=(1500, 8))
    table = kc.CodeEmbedding(1500, 32, 8, 16, codes=codes)
    inputs = keras.Input((32,))
    for temperature, most in ((None, 40_000), (0.1, 50_000)):
        head = kc.CANESoftmax(
            1500, class_embedding=table, temperature=temperature
        )
        path = tmp_path / f"{temperature}.tflite"
        model = keras.Model(inputs, head(inputs))
        made = kc.export_litert(model, path, quantize=None, verbose=0)
        assert made.file_bytes < most


def test_grown_heads_keep_the_temperature():
    table = kc.CodeEmbedding.from_table(vectors_of(5), 2, 4, verbose=0)
    head = head_of(class_embedding=table, selector="auto", num_noises=None)
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, head(inputs))
    head.log_temperature.assign(-1)
    grown = kc.grow(model, {table.name: vectors_of(6, 3)}).layers[-1]
    assert grown.num_classes == NUM_CLASSES + 3
    x, _ = examples()
    np.testing.assert_allclose(grown(x), head(x), rtol=1e-5)


def test_zeros_and_the_floor_of_the_temperature():
    """No NaN, finite gradients, and no temperature of 0."""
    x, y = examples(16)
    x[:4] = 0
    head = head_of()
    model = build_model(head)
    head.kernel.assign(vectors_of(1) * (np.arange(NUM_CLASSES) > 2)[:, None])
    for loss in LOSSES.values():
        value, gradients = loss_and_gradients(head, loss, x, y)
        for each in (value, *gradients):
            assert np.isfinite(each).all() and np.abs(each).max() < 1e3
    head.log_temperature.assign(np.log(0.0101))
    head.kernel.assign(vectors_of(1))
    # Labels that are the best class call for a lower temperature.
    y = head.top_k(model.layers[0](x), 1)[0][:, 0]
    model.compile(keras.optimizers.Adam(1.0), kc.CANELoss(), run_eagerly=True)
    model.fit(x, y, epochs=3, verbose=0)
    assert np.exp(head.log_temperature.numpy()) > 0.0099


def test_half_precision():
    x, y = examples(16)
    model = keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(WIDTH, dtype="mixed_bfloat16"),
            head_of("learned", dtype="mixed_bfloat16"),
        ]
    )
    model.compile("adam", kc.CANELoss(), run_eagerly=True)
    model.fit(x, y, verbose=0)
    outputs = model(x)
    assert outputs.dtype == "bfloat16"
    lengths = np.linalg.norm(np.asarray(outputs, "float32"), axis=1)
    np.testing.assert_allclose(lengths, 1 / 0.07, rtol=0.02)


@pytest.mark.parametrize("value", [0, -1.0, "warm", True, np.inf])
def test_bad_temperatures(value):
    with refused("temperature", value):
        head_of(value)


def test_bad_arguments():
    tree = kc.classes.ClassTree.random(NUM_CLASSES, 3)
    for selector in (
        kc.classes.BeamTree(tree),
        kc.classes.FrequencySubsets(counts(), 3),
    ):
        with refused("temperature", type(selector).__name__):
            head_of(0.1, selector=selector)
    with refused("kernel_initializer", [0, 1, 2]):
        head_of(0.1, kernel_initializer="zeros").build((None, WIDTH))
