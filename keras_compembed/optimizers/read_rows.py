"""Rows of a table, read so that their gradients are right everywhere."""

import contextlib
import threading

import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.utils.custom_gradient import custom_gradient
from keras_compembed.utils.row_ops import repeat_rows

_READING = threading.local()


@contextlib.contextmanager
def without_gradients():
    """Where rows are read for their values alone."""
    before = getattr(_READING, "only", False)
    _READING.only = True
    try:
        yield
    finally:
        _READING.only = before


def read_rows(table, ids, once=False):
    """Rows of a variable; training touches no others."""
    if once and not on_several_devices():
        return tf.gather(table.value, ids)
    different, places, room = unique_ids(ids)
    return repeat_rows(read_unique_rows(table, different, room), places)


def unique_ids(ids):
    """Each id once, over all devices."""
    if not on_several_devices() or getattr(_READING, "only", False):
        different, places = tf.unique(ids)
        return different, places, None
    # All devices read the rows of all, in the same order.
    everywhere = of_all_devices(ids)
    different = tf.sort(tf.unique(everywhere).y)
    return different, tf.searchsorted(different, ids), tf.size(everywhere)


def read_unique_rows(table, different, room):
    """Rows of what `unique_ids` returned, with the gradients of `read_rows`."""
    if not on_several_devices():
        return tf.gather(table.value, different)
    if getattr(_READING, "only", False):
        return gather_rows(table, different)
    return _gradients_of_parts(
        table, different, tf.minimum(room, table.shape[0])
    )


def pad_ids(ids, room):
    """`room` ids: those that there are, then one of them again and again."""
    again = tf.maximum(tf.reduce_max(ids), 0)
    return tf.pad(ids, [[0, room - tf.size(ids)]], constant_values=again)


def sum_rows_over_devices(rows, room):
    """Sums of what all devices have for the ids of `unique_ids`."""
    if not on_several_devices():
        return rows
    return sum_over_devices(in_room(rows, room))[: tf.shape(rows)[0]]


def _gradients_of_parts(table, ids, room):
    """Rows of ids, of whose gradients each device hands on those of a part."""
    context = tf.distribute.get_replica_context()
    size = -(-room // context.num_replicas_in_sync)
    room = size * context.num_replicas_in_sync
    start = size * tf.cast(context.replica_id_in_sync_group, size.dtype)

    @custom_gradient
    def rows_of_all(part):
        def gradient(upstream):
            upstream = in_room(upstream, room)
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, upstream)
            return total[start : start + size]

        return gather_rows(table, ids), gradient

    own = pad_ids(ids, room)[start : start + size]
    return rows_of_all(_gather_mirrored(table, own))


def in_room(rows, room):
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
