"""Fits one model in two strategies made one after the other.

Run by `test_strategies_in_a_row.py`, in a process of its own. Prints the
largest difference of weights in the last from those of one device.
"""

import contextlib
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequentClasses
from keras_compembed.noises import LearnedNoise
from keras_compembed.trees import ClassTree

ROWS, WIDTH, CLASSES = 40, 6, 30
COUNTS = 1 + 300 // np.arange(1, CLASSES + 1)


def anchors(storage):
    return kc.ANTEmbedding(
        ROWS, WIDTH, num_anchors=8, l1=0.01, storage=storage, seed=0
    )


def head(selector, **kwargs):
    return kc.CANESoftmax(
        CLASSES,
        selector,
        num_candidates=5,
        num_noises=3,
        class_counts=COUNTS,
        kernel_initializer=keras.initializers.RandomNormal(seed=0),
        seed=0,
        **kwargs,
    )


def make_model():
    inputs = keras.Input((7,), dtype="int32")
    hidden = [
        keras.layers.GlobalAveragePooling1D()(anchors(storage)(inputs))
        for storage in ("lazy", "sparse")
    ]
    tree = ClassTree.random(CLASSES, 4, seed=0)
    heads = [
        head(BeamTree(tree, max_frontier=4), noise=LearnedNoise()),
        head(FrequentClasses(COUNTS)),
    ]
    outputs = [one(part) for one, part in zip(heads, hidden, strict=True)]
    model = keras.Model(inputs, outputs)
    model.compile(
        kc.optimizers.SparseRowOptimizer(
            keras.optimizers.Adam(0.01, global_clipnorm=1.0)
        ),
        [kc.CANELoss(), kc.CANELoss()],
        jit_compile=False,
    )
    return model


def fit(scope, seed):
    with scope:
        model = make_model()
    # Few ids or many, so that devices have to exchange few rows or many.
    rng = np.random.default_rng(seed)
    ids = rng.integers(3 + 12 * seed, size=(38, 7))
    labels = rng.integers(CLASSES - 9 * seed, size=38)
    model.fit(
        ids, [labels, labels], batch_size=16, epochs=1, shuffle=False, verbose=0
    )
    layers = [
        layer for layer in model.layers if isinstance(layer, kc.ANTEmbedding)
    ]
    return [
        *(layer.get_transform().dense_rows() for layer in layers),
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
    one = fit(contextlib.nullcontext(), seed)
    print(max(abs(a - b).max() for a, b in zip(one, several, strict=True)))


if __name__ == "__main__":
    main()
