"""Several devices on one machine, for the examples."""

import tensorflow as tf


def mirrored_strategy(devices):
    """A strategy over GPUs or, where there is none, logical CPU devices.

    Args:
        devices: Integer. Logical devices are made before TensorFlow runs
            anything: call this first.
    """
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy(
            [f"GPU:{i}" for i in range(devices)]
        )
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration() for _ in range(devices)],
    )
    return tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(devices)],
        cross_device_ops=tf.distribute.HierarchicalCopyAllReduce(),
    )
