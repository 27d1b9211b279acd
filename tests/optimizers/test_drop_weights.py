"""Weights that layers drop leave nothing behind in optimizers and files."""

import keras
import numpy as np
import pytest

import keras_compembed as kc

ROWS, WIDTH = 2000, 16
IDS = np.random.default_rng(0).integers(ROWS, size=(8, 5)).astype("int32")
TARGETS = np.ones((8, 3), "float32")

OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "averaging": lambda: keras.optimizers.Adam(0.01, use_ema=True),
    "accumulating": lambda: keras.optimizers.SGD(
        0.1, momentum=0.9, gradient_accumulation_steps=2
    ),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        kc.optimizers.SparseRowOptimizer("adam")
    ),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),
}


def coded(learn_codes="softmax"):
    return kc.CodeEmbedding(ROWS, WIDTH, 4, 8, learn_codes=learn_codes, seed=0)


def trained(layer, optimizer="adam", run_eagerly=True):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(OPTIMIZERS[optimizer](), "mse", run_eagerly=run_eagerly)
    fit(model)
    return model


def fit(model):
    model.fit(IDS, TARGETS, batch_size=4, epochs=2, shuffle=False, verbose=0)


def check_dropped(model, drop, limit, tmp_path):
    """After `drop`, nothing of what went is anywhere; training goes on."""
    model.predict(IDS, verbose=0)
    layer = model.layers[0]
    slots = {id(slot): slot.numpy() for slot in model.optimizer.variables}
    drop()
    assert sum(value.size for value in values(model)) < 2000
    for slot in model.optimizer.variables:
        np.testing.assert_array_equal(slot.numpy(), slots[id(slot)], slot.path)

    path = tmp_path / "model.keras"
    model.save(path)
    assert path.stat().st_size < limit
    # A warning, if the optimizer's variables did not fit.
    loaded = keras.saving.load_model(path)
    if not model.run_eagerly:
        model.export(tmp_path / "saved_model", verbose=False)
        variables = tmp_path / "saved_model" / "variables"
        assert sum(x.stat().st_size for x in variables.rglob("*")) < limit
    loaded.run_eagerly = model.run_eagerly

    before = layer.embeddings
    for one in (model, loaded):
        fit(one)
    assert not np.array_equal(layer.embeddings, before)
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), same.numpy())
    for value, same in zip(values(model), values(loaded), strict=True):
        np.testing.assert_array_equal(value, same)
    np.testing.assert_array_equal(
        model.predict(IDS, verbose=0), loaded.predict(IDS, verbose=0)
    )


def values(model):
    return [variable.numpy() for variable in model.optimizer.variables]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_freeze_codes(optimizer, tmp_path):
    model = trained(coded(), optimizer)
    check_dropped(model, model.layers[0].freeze_codes, 60_000, tmp_path)


def test_sparsify(tmp_path):
    layer = kc.ANTEmbedding(ROWS, WIDTH, num_anchors=32, storage="lazy", seed=0)
    model = trained(layer, run_eagerly=False)
    check_dropped(model, layer.sparsify, 120_000, tmp_path)


def test_codes_frozen_in_the_midst_of_training():
    model = trained(coded("follow"), run_eagerly=False)
    layer = model.layers[0]

    class Freeze(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                layer.recode()
                layer.freeze_codes()

    model.fit(IDS, TARGETS, epochs=2, callbacks=[Freeze()], verbose=0)
    assert layer.learn_codes is None


def test_one_layer_after_another():
    first, second = coded(), coded("follow")
    inputs = keras.Input(IDS.shape[1:], dtype="int32")
    model = keras.Model(
        inputs, keras.layers.Add()([first(inputs), second(inputs)])
    )
    model.compile("adam", "mse", run_eagerly=True)
    targets = np.zeros(model(IDS).shape)
    model.fit(IDS, targets, verbose=0)
    second.recode()
    for layer in (first, second):
        layer.freeze_codes()
        number = len(model.optimizer.variables)
        model.fit(IDS, targets, verbose=0)
        assert len(model.optimizer.variables) == number
    assert number == 2 + 2 * len(model.trainable_variables)


def test_loaded_before_freezing(tmp_path):
    trained(coded()).save(tmp_path / "learning.keras")
    model = keras.saving.load_model(tmp_path / "learning.keras")
    check_dropped(model, model.layers[0].freeze_codes, 60_000, tmp_path)


def test_other_optimizers_are_left_alone():
    model, other = trained(coded()), trained(coded())
    number = len(other.optimizer.variables)
    function = other.train_function
    model.layers[0].freeze_codes()
    assert len(other.optimizer.variables) == number
    assert other.train_function is function
