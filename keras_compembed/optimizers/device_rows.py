"""Reads and writes of this device's copy of a variable."""

import tensorflow as tf


def on_several_devices():
    """Whether this is one of several devices that take a step together."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def sum_over_devices(values):
    """The sum of what all devices have, on every device."""
    if not on_several_devices():
        return values
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def of_all_devices(values):
    """What all devices have, in their order."""
    if not on_several_devices():
        return values
    context = tf.distribute.get_replica_context()
    # What comes straight from a dataset is on no device, and is refused.
    return context.all_gather(tf.identity(values), axis=0)


def rows_of_all_devices(rows):
    """How many rows devices have before this one, and all of them."""
    if not on_several_devices():
        return tf.zeros_like(rows), rows
    context = tf.distribute.get_replica_context()
    counts = of_all_devices(tf.reshape(rows, (1,)))
    starts = tf.cumsum(counts, exclusive=True)
    start = starts[context.replica_id_in_sync_group]
    return start, tf.reduce_sum(counts)


def share_of_device(values):
    """An equal part of what all devices have alike, for Keras to add up."""
    if not on_several_devices():
        return values
    context = tf.distribute.get_replica_context()
    return values / context.num_replicas_in_sync


def own_value(variable):
    """The value of this device's copy of a Keras variable."""
    return tf.convert_to_tensor(variable.value)


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
    if not on_several_devices():
        return tf.gather(variable.value, ids)
    # `tf.gather` reads the whole of a variable that devices mirror.
    rows = tf.raw_ops.ResourceGather(
        resource=variable.value.handle, indices=ids, dtype=variable.dtype
    )
    return tf.ensure_shape(rows, (*ids.shape, *variable.shape[1:]))
