"""Fits models in two strategies made one after the other.

Run in a process of its own. Prints the largest difference of weights in the
last from those of one device.
"""

import functools

import keras
import multi_worker
import numpy as np
import tensorflow as tf

import keras_compembed as kc


def fit(strategy, seed, run_eagerly=False):
    # Few ids or many, so that devices have to exchange few rows or many.
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(38, multi_worker.WIDTH)).astype("float32")
    words = rng.integers(60 - 24 * seed, size=38)
    ids = rng.integers(3 + 12 * seed, size=(38, multi_worker.LENGTH))
    weights = []
    for make, data in (
        (multi_worker.anchors, (ids, ids[:, 0] % 2)),
        (functools.partial(multi_worker.softmax, "tree"), (x, words)),
    ):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = make()
            # More than there is: each device clips its own part.
            adam = keras.optimizers.Adam(0.01, global_clipnorm=1e3)
            model.compile(
                kc.optimizers.SparseRowOptimizer(adam),
                model.loss,
                jit_compile=False,
                run_eagerly=run_eagerly,
            )
        model.fit(*data, batch_size=16, shuffle=False, verbose=0)
        weights += [weight.numpy() for weight in model.trainable_weights]
    return weights


def main():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration() for _ in range(2)],
    )
    for seed in (0, 2):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        several = fit(strategy, seed)
    one = fit(tf.distribute.get_strategy(), seed, run_eagerly=True)
    print(max(np.abs(a - b).max() for a, b in zip(one, several, strict=True)))
