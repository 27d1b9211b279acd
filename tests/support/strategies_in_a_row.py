"""Fits one model in two strategies made one after the other.

Run in a process of its own. Prints the largest difference of weights in the
last from those of one device.
"""

import contextlib

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc

ROWS, WIDTH, CLASSES = 40, 6, 30
COUNTS = 1 + 300 // np.arange(1, CLASSES + 1)


def make_model(run_eagerly):
    inputs = keras.Input((7,), dtype="int32")
    anchors = [
        kc.ANTEmbedding(
            ROWS, WIDTH, num_anchors=8, l1=0.01, storage=storage, seed=0
        )
        for storage in ("lazy", "sparse")
    ]
    hidden = keras.layers.add([layer(inputs) for layer in anchors])
    tree = kc.trees.ClassTree.random(CLASSES, 4, seed=0)
    head = kc.CANESoftmax(
        CLASSES,
        kc.candidates.BeamTree(tree, max_frontier=4),
        num_candidates=5,
        num_noises=3,
        noise=kc.noises.LearnedNoise(),
        class_counts=COUNTS,
        kernel_initializer=keras.initializers.RandomNormal(seed=0),
        seed=0,
    )
    outputs = head(keras.layers.GlobalAveragePooling1D()(hidden))
    model = keras.Model(inputs, outputs)
    model.compile(
        kc.optimizers.SparseRowOptimizer(
            keras.optimizers.Adam(0.01, global_clipnorm=1.0)
        ),
        kc.CANELoss(),
        jit_compile=False,
        run_eagerly=run_eagerly,
    )
    return model, anchors


def fit(scope, seed, run_eagerly=False):
    with scope:
        model, anchors = make_model(run_eagerly)
    # Few ids or many, so that devices have to exchange few rows or many.
    rng = np.random.default_rng(seed)
    ids = rng.integers(3 + 12 * seed, size=(38, 7))
    labels = rng.integers(CLASSES - 9 * seed, size=38)
    model.fit(ids, labels, batch_size=16, shuffle=False, verbose=0)
    return [
        *(layer.get_transform().dense_rows() for layer in anchors),
        *(weight.numpy() for weight in model.trainable_weights),
    ]


def main():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration() for _ in range(2)],
    )
    for seed in (0, 2):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        several = fit(strategy.scope(), seed)
    one = fit(contextlib.nullcontext(), seed, run_eagerly=True)
    print(max(abs(a - b).max() for a, b in zip(one, several, strict=True)))
