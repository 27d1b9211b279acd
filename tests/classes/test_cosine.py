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

LOSSES = [kc.CANELoss(), kc.NCELoss(5), kc.InBatchSoftmaxLoss()]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def scores_of(features, kernel, bias, log_temperature):
    cosines = unit(np.asarray(features)) @ unit(np.asarray(kernel)).T
    return cosines / np.exp(log_temperature) + np.asarray(bias)


def head_of(temperature="learned", **kwargs):
    kwargs |= {"temperature": temperature, "class_counts": counts()}
    return cane(NUM_CLASSES, num_candidates=4, num_noises=3, **kwargs)


def vectors_of(seed, rows=NUM_CLASSES):
    return np.random.default_rng(seed).normal(size=(rows, WIDTH))


def test_probabilities_and_gradients():
    x, y = examples(16)
    head = head_of(selector=kc.classes.AllClasses(), width=WIDTH)
    weights = [each.numpy() for each in head.trainable_weights]
    arrays = [np.array(each, "float64") for each in (x, *weights)]

    def reference(*arrays):
        scores = scores_of(*arrays)
        return np.mean(log_sum_exp(scores) - own(scores, y))

    found = loss_and_gradients(head, kc.CANELoss(), x, y, jit_compile=True)
    check_equal(*found, reference, arrays)
    for features in (x, head(x)):
        check_answer(head.probabilities(features), head, x)


def check_answer(got, head, features, k=None):
    """Probabilities are those of NumPy."""
    kernel, table = head.kernel, head.class_embedding
    if table is not None:
        kernel = table(np.arange(NUM_CLASSES))
    scores = scores_of(features, kernel, head.bias, head.log_temperature)
    expected = np.exp(scores - log_sum_exp(scores)[:, None])
    if k:
        order = np.argsort(-expected, axis=1)[:, :k]
        np.testing.assert_array_equal(got["ids"], order)
        got = got["probabilities"]
        expected = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(got, expected, rtol=2e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_equal_those_of_layers_that_scale(loss):
    x, y = examples(16)
    unit, scale = keras.layers.UnitNormalization, keras.layers.Rescaling(2.5)
    tower = [keras.layers.Dense(WIDTH, use_bias=False), unit()]
    table = kc.FeatureEmbedding(np.eye(NUM_CLASSES), keras.Sequential(tower))
    head = head_of(None, class_embedding=table)
    plain = keras.Sequential([unit(), scale, head])
    results = []
    for model in (head_of(0.4), plain):
        model(x)
        for weight in model.trainable_weights:
            weight.assign(vectors_of(1) if len(weight.shape) > 1 else counts())
        value, gradients = loss_and_gradients(model, loss, x, y)
        results.append((value, *sorted(gradients, key=lambda x: x.shape.rank)))
    for got, right in zip(*results, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-6)


def table_of(name):
    rows = vectors_of(5)
    if name == "codes":
        return kc.CodeEmbedding.from_table(rows, 2, 4, verbose=0)
    if name == "f":
        return kc.FeatureEmbedding(rows, keras.layers.Dense(WIDTH))
    return keras.layers.Embedding(NUM_CLASSES, WIDTH)


@pytest.mark.parametrize("name", ["own", "table", "codes", "f"])
def test_training_copies_and_files(name, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.integers(NUM_CLASSES, size=(48, 2)).astype("int32")
    table = table_of(name)
    inputs = keras.Input((2,), dtype="int32")
    hidden = keras.layers.Flatten()(table(inputs))
    hidden = keras.layers.Dense(WIDTH)(hidden)
    head = head_of(class_embedding=None if name == "own" else table)
    model = keras.Model(inputs, head(hidden))
    adam = kc.optimizers.SparseRowOptimizer("adam")
    model.compile(adam, kc.CANELoss(), run_eagerly=True)
    model.fit(x, x[:, 0], epochs=3, verbose=0)
    assert abs(head.log_temperature.numpy() - np.log(0.07)) > 1e-3

    features = keras.Model(inputs, hidden)(x)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (loaded, kc.strip(model)):
        check_answer(kc.top_k_model(each, 3)(x), head, features, 3)
    searched = kc.classes.fit_search(head, features, 1.0, 3, 2, verbose=0)
    found = [each.top_k(features, 3)[0] for each in (searched, head)]
    np.testing.assert_array_equal(*found)
    if name == "codes":
        grown = kc.grow(model, {table.name: vectors_of(6, 3)}).layers[-1]
        np.testing.assert_allclose(grown(features), head(features), rtol=1e-5)
    if name != "f":
        path, k = tmp_path / "model.tflite", None if name == "codes" else 3
        kc.export_litert(model, path, top_k=k, quantize=None, verbose=0)
        check_answer(kc.export.LiteRTModel(path)(x), head, features, k)


def test_zeros_and_the_least_temperature():
    x, y = examples(16)
    x[:4] = 0
    head = head_of(dtype="mixed_bfloat16")
    model = build_model(head)
    head.kernel.assign(vectors_of(1) * (np.arange(NUM_CLASSES) > 2)[:, None])
    for loss in LOSSES:
        value, gradients = loss_and_gradients(head, loss, x, y)
        for each in (value, *gradients):
            assert np.isfinite(each).all() and np.abs(each).max() < 1e3
    head.log_temperature.assign(np.log(0.0101))
    # Labels that are the best class call for a lower temperature.
    y = head.top_k(model.layers[0](x), 1)[0][:, 0]
    model.compile(keras.optimizers.Adam(1.0), kc.CANELoss(), run_eagerly=True)
    model.fit(x, y, epochs=3, verbose=0)
    assert np.exp(head.log_temperature.numpy()) > 0.0099


def test_bad_arguments():
    for value in (0, -1.0, "warm", True, np.inf):
        with refused("temperature", value):
            head_of(value)
    with refused("temperature", "FrequencySubsets"):
        head_of(0.1, selector=kc.classes.FrequencySubsets(counts(), 3))
    with refused("kernel_initializer", [0, 1, 2]):
        head_of(0.1, kernel_initializer="zeros").build((None, WIDTH))
