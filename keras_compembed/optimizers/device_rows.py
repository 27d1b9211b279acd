"""Reads and writes rows of tables, on one or several devices."""

import contextlib
import threading

import numpy as np
import tensorflow as tf

from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.tensor_ops import in_xla
from keras_compembed.utils.tensor_ops import repeat_rows

# With more rows than this, marking each row of the table is too slow.
_MARKED_ROWS = 1 << 22
_READING = threading.local()


def on_several_devices():
    """Whether several devices take this step together."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def sum_over_devices(values):
    """Sum of the values of all devices, on every device."""
    if not on_several_devices():
        return values
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def of_all_devices(values):
    """Values of all devices, in the order of devices."""
    if not on_several_devices():
        return values
    context = tf.distribute.get_replica_context()
    # Values straight from a dataset are on no device, which raises an error.
    return context.all_gather(tf.identity(values), axis=0)


def rows_of_all_devices(rows):
    """The number of rows on earlier devices, and on all devices."""
    if not on_several_devices():
        return tf.zeros_like(rows), rows
    context = tf.distribute.get_replica_context()
    counts = of_all_devices(tf.reshape(rows, (1,)))
    starts = tf.cumsum(counts, exclusive=True)
    start = starts[context.replica_id_in_sync_group]
    return start, tf.reduce_sum(counts)


def share_of_device(values):
    """Divides by the number of devices, as Keras sums over them."""
    if not on_several_devices():
        return values
    context = tf.distribute.get_replica_context()
    return values / context.num_replicas_in_sync


def own_value(variable):
    """The value of a Keras variable on this device."""
    return tf.convert_to_tensor(variable.value)


def write(variable, value):
    """Sets the value of a Keras variable on this device."""
    tf.raw_ops.AssignVariableOp(
        resource=variable.value.handle, value=tf.cast(value, variable.dtype)
    )


def write_rows(variable, ids, rows):
    """Sets rows of a variable on this device; `ids` must be unique."""
    tf.raw_ops.ResourceScatterUpdate(
        resource=variable.value.handle,
        indices=ids,
        updates=tf.cast(rows, variable.dtype),
    )


def gather_rows(variable, ids):
    """Rows of a variable on this device."""
    if not on_several_devices():
        return tf.gather(variable.value, ids)
    # `tf.gather` reads all of a mirrored variable.
    rows = tf.raw_ops.ResourceGather(
        resource=variable.value.handle, indices=ids, dtype=variable.dtype
    )
    return tf.ensure_shape(rows, (*ids.shape, *variable.shape[1:]))


@contextlib.contextmanager
def without_gradients():
    """A context that reads rows without gradients."""
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
    different, places, room = unique_ids(ids, table.shape[0])
    return repeat_rows(read_unique_rows(table, different, room), places)


def unique_ids(ids, num_rows):
    """Unique ids over all devices."""
    if not on_several_devices() or getattr(_READING, "only", False):
        different, places = unique(ids, num_rows)
        return different, places, None
    # All devices read the same rows in the same order.
    everywhere = of_all_devices(ids)
    different = tf.sort(tf.unique(everywhere).y)
    return different, tf.searchsorted(different, ids), tf.size(everywhere)


def read_unique_rows(table, different, room):
    """Rows of the result of `unique_ids`, with gradients of `read_rows`."""
    if not on_several_devices():
        return tf.gather(table.value, different)
    if getattr(_READING, "only", False):
        return gather_rows(table, different)
    return _gradients_of_parts(
        table, different, tf.minimum(room, table.shape[0])
    )


def pad_ids(ids, room):
    """Pads ids to `room` by repeating one of them."""
    again = tf.maximum(tf.reduce_max(ids), 0)
    return tf.pad(ids, [[0, room - tf.size(ids)]], constant_values=again)


def sum_rows_over_devices(rows, room):
    """Sums over all devices of rows for the ids of `unique_ids`."""
    if not on_several_devices():
        return rows
    return sum_over_devices(in_room(rows, room))[: tf.shape(rows)[0]]


def _gradients_of_parts(table, ids, room):
    """Rows of ids; each device passes on the gradients of a part."""
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
    """Pads rows to `room`; adds up the rows of slices."""
    if isinstance(rows, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(rows.values, rows.indices, room)
    number = tf.shape(rows)[0]
    others = [[0, 0]] * (rows.shape.rank - 1)
    return tf.pad(rows, [[0, room - number], *others])


def _gather_mirrored(table, ids):
    # Gradient tapes watch only this read. It is left out of graphs.
    tf.convert_to_tensor(table)
    return gather_rows(table, ids)


def unique(ids, num_rows):
    """Like `tf.unique`, for ids below `num_rows`."""
    if not in_xla():
        return tf.unique(ids)
    # There, `tf.unique` takes ten times as long.
    firsts, places = unique_places(ids, num_rows)
    return tf.gather(ids, firsts), places


def unique_places(ids, num_rows):
    """First places of unique ids, and the index of each id among these."""
    steps = tf.range(tf.size(ids))
    exist = ids >= 0
    firsts = first_places(ids, num_rows)
    is_first = tf.cast(exist & tf.equal(firsts, steps), "int32")
    is_first = computed_once(is_first)
    numbers = tf.cumsum(is_first) - 1
    # Segments of negative ids are undefined.
    firsts = tf.where(exist, firsts, 0)
    places = tf.where(exist, tf.gather(numbers, firsts), -1)
    return tf.where(is_first > 0)[:, 0], places


def first_places(ids, num_rows):
    """The first place of an equal id, for each place."""
    if num_rows > _MARKED_ROWS:
        return _find_by_order(ids)
    steps = tf.range(tf.size(ids))
    marks = tf.math.unsorted_segment_min(steps, ids, num_rows)
    return tf.gather(marks, tf.maximum(ids, 0))


def computed_once(values):
    """Makes XLA compute `values` once, instead of for each use."""
    if not in_xla():
        return values
    # XLA does not fuse a scatter to computed places with later reads.
    places = tf.range(tf.shape(values)[0])[:, None]
    return tf.tensor_scatter_nd_update(tf.zeros_like(values), places, values)


def transpose(values, axes):
    """Like `tf.transpose`, computed once in XLA, as is its gradient."""

    @custom_gradient
    def compute(values):
        result = computed_once(tf.transpose(values, axes))
        return result, lambda upstream: transpose(upstream, np.argsort(axes))

    # XLA would read columns one by one in each later op.
    return compute(values) if in_xla() else tf.transpose(values, axes)


def _find_by_order(ids):
    """The first place of an equal id, for each place, by sorting."""
    size = tf.size(ids)
    wide = tf.cast(ids, "int64") * tf.cast(size, "int64")
    order = tf.sort(wide + tf.range(size, dtype="int64"))
    ordered = order // tf.cast(size, "int64")
    places = tf.cast(order - ordered * tf.cast(size, "int64"), "int32")
    begins = tf.concat(
        [tf.ones_like(ordered[:1], "bool"), ordered[1:] != ordered[:-1]], axis=0
    )
    runs = tf.cumsum(tf.cast(begins, "int32")) - 1
    firsts = tf.gather(tf.gather(places, tf.where(begins)[:, 0]), runs)
    return tf.scatter_nd(places[:, None], firsts, tf.shape(ids))
