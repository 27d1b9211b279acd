"""Rows of a table, read so that their gradients are right everywhere."""

import tensorflow as tf


def read_rows(table, ids, once=False):
    """Rows of a variable; training touches no others.

    As `tf.gather`, with gradients in which each row comes once: Keras's
    optimizers take the gradients of repeated rows one by one, which is wrong
    for all that are not linear in the gradient. Rows that several devices
    read come once over all devices.

    Args:
        table: Keras variable `(rows, columns)`.
        ids: Integer tensor `(ids,)`.
        once: Boolean. Whether each id is known to come once on this device.
            Defaults to `False`.

    Returns:
        Tensor `(ids, columns)`.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        if once:
            return tf.gather(table.value, ids)
        different, places = tf.unique(ids)
        return tf.gather(tf.gather(table.value, different), places)
    # All devices read the rows of all, in the same order.
    everywhere = context.all_gather(ids, axis=0)
    different = tf.sort(tf.unique(everywhere).y)
    rows = _gradients_once(_gather_mirrored(table.value, different), context)
    return tf.gather(rows, tf.searchsorted(different, ids))


def _gather_mirrored(table, ids):
    # `tf.gather` reads the whole of a variable that devices mirror. This read
    # only has gradient tapes watch it, and is left out of graphs.
    tf.convert_to_tensor(table)
    rows = tf.raw_ops.ResourceGather(
        resource=table.handle, indices=ids, dtype=table.dtype
    )
    return tf.ensure_shape(rows, (None, *table.shape[1:]))


def _gradients_once(rows, context):
    """`rows`, of whose gradients each device hands on the sums of a part."""

    @tf.custom_gradient
    def identity(rows):
        def gradient(upstream):
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, upstream)
            mine = tf.equal(
                tf.range(tf.shape(total)[0]) % context.num_replicas_in_sync,
                tf.cast(context.replica_id_in_sync_group, tf.int32),
            )
            return tf.where(mine[:, None], total, tf.zeros_like(total))

        return tf.identity(rows), gradient

    return identity(rows)
