"""Models of tf_keras, as Keras 2 makes them, and its packages."""

import importlib.util

import numpy as np
import pytest

IDS = 2000


def needs_tfmot():
    for name in ("tf_keras", "tensorflow_model_optimization"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}; see `make test-slow`")


def classifier(tf_keras):
    """Of the mean of word vectors."""
    layers = tf_keras.layers
    return tf_keras.Sequential(
        [
            layers.Input((6,), dtype="int32"),
            layers.Embedding(IDS, 16, name="words"),
            layers.GlobalAveragePooling1D(name="mean"),
            layers.Dense(8, activation="relu", name="hidden"),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )


def data():
    ids = np.random.default_rng(0).integers(IDS, size=(32, 6)).astype("int32")
    return ids, ids[:, 0] % 3


def train(model, *callbacks):
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(*data(), batch_size=8, verbose=0, callbacks=list(callbacks))
    return model


def pruned(tf_keras, tfmot):
    sparsity = tfmot.sparsity.keras
    model = sparsity.prune_low_magnitude(
        classifier(tf_keras),
        pruning_schedule=sparsity.ConstantSparsity(0.6, 0, frequency=1),
    )
    return train(model, sparsity.UpdatePruningStep())


def convolutions(tf_keras, tfmot):
    """Quantized as a whole; activations are after the normalization."""
    layers = tf_keras.layers
    model = tf_keras.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )
    model = tfmot.quantization.keras.quantize_model(model)
    rng = np.random.default_rng(0)
    model.compile("sgd", "mse")
    images = rng.normal(size=(16, 8, 8, 3)).astype("float32")
    model.fit(images, rng.normal(size=(16, 2)), verbose=0)
    return model
