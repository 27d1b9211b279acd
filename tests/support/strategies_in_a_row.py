"""Fits models in two strategies made one after the other.

Run in a process of its own. Prints the largest difference of weights in the
last from those of one device.
"""

import multi_worker
import numpy as np
import tensorflow as tf


def main():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration() for _ in range(2)],
    )
    for name in ("anchors", "tree"):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        several = multi_worker.train(name, strategy)
    one = multi_worker.train(name, tf.distribute.get_strategy())
    print(
        max(
            np.abs(value - several[key]).max()
            for key, value in one.items()
            if key.startswith("weight")
        )
    )
