"""Several devices on one machine, for the examples."""

import tensorflow as tf


def mirrored_strategy(devices):
    """A mirrored strategy on GPUs, or on logical CPU devices without a GPU.

    Args:
        devices: Integer. Call this first: logical devices must be made before
            TensorFlow runs any op.
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
