"""Reads and writes of this device's copy of a variable.

Keras and TensorFlow let devices that mirror a variable write to it only by
agreement, whole, and with an aggregation that suits all writers. What every
device computes alike may be written by each for itself.
"""

import tensorflow as tf


def write(variable, value):
    """Sets this device's copy of a Keras variable."""
    tf.raw_ops.AssignVariableOp(
        resource=variable.value.handle, value=tf.cast(value, variable.dtype)
    )


def write_rows(variable, ids, rows):
    """Sets rows of this device's copy; `ids` holds each row once."""
    tf.raw_ops.ResourceScatterUpdate(
        resource=variable.value.handle,
        indices=ids,
        updates=tf.cast(rows, variable.dtype),
    )


def gather_rows(variable, ids):
    """Rows of this device's copy."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tf.gather(variable.value, ids)
    # `tf.gather` reads the whole of a variable that devices mirror.
    rows = tf.raw_ops.ResourceGather(
        resource=variable.value.handle, indices=ids, dtype=variable.dtype
    )
    return tf.ensure_shape(rows, (None, *variable.shape[1:]))
