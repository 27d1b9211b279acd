"""Rows of a table, read so that their gradients are right everywhere."""

import contextlib
import threading

import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.utils.custom_gradient import custom_gradient
from keras_compembed.utils.repeat_rows import repeat_rows

_READING = threading.local()


@contextlib.contextmanager
def without_gradients():
    """Where rows are read for their values alone.

    Devices then do not wait for each other, as they cannot in a loop.
    """
    before = getattr(_READING, "only", False)
    _READING.only = True
    try:
        yield
    finally:
        _READING.only = before


def read_rows(table, ids, once=False):
    """Rows of a variable; training touches no others.

    As `tf.gather`, with gradients in which each row comes once: Keras's
    optimizers take the gradients of repeated rows one by one, which is wrong
    for all that are not linear in the gradient. Rows that several devices
    read come once over all devices.

    Args:
        table: Keras variable `(rows, columns)`, or `(rows,)`.
        ids: Integer tensor `(ids,)`.
        once: Boolean. Whether each id is known to come once on this device.
            Defaults to `False`.

    Returns:
        Tensor `(ids, columns)`, or `(ids,)`.
    """
    if once and not on_several_devices():
        return tf.gather(table.value, ids)
    different, places, room = unique_ids(ids)
    return repeat_rows(read_unique_rows(table, different, room), places)


def unique_ids(ids):
    """Each id once, over all devices.

    Args:
        ids: Integer tensor `(ids,)`.

    Returns:
        Tensor `(different ids,)`, on every device the same; where in it each
        of `ids` is; and the most ids that there could be among so many, or
        None on one device.
    """
    if not on_several_devices() or getattr(_READING, "only", False):
        different, places = tf.unique(ids)
        return different, places, None
    # All devices read the rows of all, in the same order.
    everywhere = of_all_devices(ids)
    different = tf.sort(tf.unique(everywhere).y)
    return different, tf.searchsorted(different, ids), tf.size(everywhere)


def read_unique_rows(table, different, room):
    """Rows of what `unique_ids` returned, with the gradients of `read_rows`.

    Args:
        table: Keras variable `(rows, columns)`, or `(rows,)`.
        different: Integer tensor `(different ids,)`.
        room: Integer tensor, the third of what `unique_ids` returned. What
            devices exchange is of this size: TensorFlow takes the exchanges
            of a second strategy for those of the first, and raises where
            shapes differ.
    """
    if not on_several_devices():
        return tf.gather(table.value, different)
    if getattr(_READING, "only", False):
        return gather_rows(table, different)
    return _gradients_of_parts(
        table, different, tf.minimum(room, table.shape[0])
    )


def pad_ids(ids, room):
    """`room` ids: those that there are, then one of them again and again.

    Rows of zeros that come with it change no sum of rows.
    """
    again = tf.maximum(tf.reduce_max(ids), 0)
    return tf.pad(ids, [[0, room - tf.size(ids)]], constant_values=again)


def sum_rows_over_devices(rows, room):
    """Sums of what all devices have for the ids of `unique_ids`.

    Args:
        rows: Tensor `(different ids, columns)`.
        room: As for `read_unique_rows`.
    """
    if not on_several_devices():
        return rows
    return sum_over_devices(_in_room(rows, room))[: tf.shape(rows)[0]]


def _gradients_of_parts(table, ids, room):
    """Rows of ids, of whose gradients each device hands on those of a part.

    Args:
        table: Keras variable.
        ids: Integer tensor, the same on all devices.
        room: Integer tensor, at least as many as `ids`.
    """
    context = tf.distribute.get_replica_context()
    size = -(-room // context.num_replicas_in_sync)
    room = size * context.num_replicas_in_sync
    start = size * tf.cast(context.replica_id_in_sync_group, size.dtype)

    @custom_gradient
    def rows_of_all(part):
        def gradient(upstream):
            upstream = _in_room(upstream, room)
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, upstream)
            return total[start : start + size]

        return gather_rows(table, ids), gradient

    own = pad_ids(ids, room)[start : start + size]
    return rows_of_all(_gather_mirrored(table, own))


def _in_room(rows, room):
    """`room` rows: those that there are, added up where they are slices."""
    if isinstance(rows, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(rows.values, rows.indices, room)
    number = tf.shape(rows)[0]
    others = [[0, 0]] * (rows.shape.rank - 1)
    return tf.pad(rows, [[0, room - number], *others])


def _gather_mirrored(table, ids):
    # This read only has gradient tapes watch it, and is left out of graphs.
    tf.convert_to_tensor(table)
    return gather_rows(table, ids)
