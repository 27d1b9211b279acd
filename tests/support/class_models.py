"""Small tasks of classes, and what every loss has to do with them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.classes import Selector

NUM_CLASSES = 12
WIDTH = 4
BATCH_SIZE = 16


@keras.saving.register_keras_serializable(package="class_models")
class FirstClasses(Selector):
    """A selector without a tree: class vectors are rows of the kernel."""

    def select(self, scores, features, context=None):
        return tf.range(self.num_candidates)


def cane(num_classes, width=None, seed=1, **kwargs):
    """A `CANESoftmax` and its `Sampling`; built by weights of size 1."""
    sampling = {
        name: kwargs.pop(name) for name in vars(kc.Sampling()) if name in kwargs
    }
    kwargs = {"seed": 0, **kwargs}
    head = kc.CANESoftmax(
        num_classes, sampling=kc.Sampling(**sampling), **kwargs
    )
    if width is not None:
        head.build((None, width))
        randomize(head, seed)
    return head


def examples(rows=6 * BATCH_SIZE):
    """Features of clusters, and their classes, some of them frequent."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(NUM_CLASSES, WIDTH))
    frequencies = 1 / np.arange(1, NUM_CLASSES + 1)
    frequencies /= frequencies.sum()
    labels = rng.choice(NUM_CLASSES, rows, p=frequencies)
    features = centres[labels] + rng.normal(size=(rows, WIDTH))
    return features.astype("float32"), labels.astype("int32")


def counts():
    _, labels = examples()
    return np.bincount(labels, minlength=NUM_CLASSES)


def build_model(layer):
    encoder = keras.layers.Dense(
        WIDTH, kernel_initializer=keras.initializers.Identity()
    )
    return keras.Sequential([keras.Input((WIDTH,)), encoder, layer])


def randomize(layer, seed=1):
    """Weights of size 1, so that nothing cancels."""
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


def numerical_gradient(function, *arrays):
    """Gradients of a NumPy function of float64 arrays."""
    gradients = []
    for array in arrays:
        gradient = np.empty_like(array)
        for place in np.ndindex(array.shape):
            kept = array[place]
            array[place] = kept + 1e-5
            above = function(*arrays)
            array[place] = kept - 1e-5
            below = function(*arrays)
            array[place] = kept
            gradient[place] = (above - below) / 2e-5
        gradients.append(gradient)
    return gradients


def loss_and_gradients(layer, loss, features, labels, jit_compile=False):
    """Of the mean loss: by features, then by the layer's weights."""

    def step(features, labels):
        variables = [weight.value for weight in layer.trainable_weights]
        with tf.GradientTape() as tape:
            tape.watch(features)
            value = loss(labels, layer(features, training=True))
        gradients = tape.gradient(value, [features, *variables])
        if jit_compile:
            # XLA returns indices of unknown number wrongly.
            gradients = [tf.convert_to_tensor(each) for each in gradients]
        return value, gradients

    if jit_compile:
        step = tf.function(step, jit_compile=True)
    value, gradients = step(tf.constant(features), tf.constant(labels))
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            ids = gradient.indices.numpy()
            assert len(set(ids)) == len(ids)
    return value, [tf.convert_to_tensor(gradient) for gradient in gradients]


def check_equal(value, gradients, reference, arrays):
    """A value and its gradients are those of a NumPy function of arrays."""
    assert float(value) == pytest.approx(reference(*arrays), rel=1e-5)
    expected = numerical_gradient(reference, *arrays)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def log_sum_exp(scores):
    largest = scores.max(axis=-1, keepdims=True)
    return (largest + np.log(np.exp(scores - largest).sum(-1, keepdims=True)))[
        ..., 0
    ]


def own(scores, labels):
    return scores[np.arange(len(labels)), labels]


def shares_of_noise():
    q = counts() ** 0.75
    return q / q.sum()
