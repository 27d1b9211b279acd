"""Random bits that noises are drawn by, for each row of a batch."""

import tensorflow as tf

from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import rows_of_all_devices


def random_bits(seed, columns, rows=None):
    """Uniform integers over all of int64."""
    seed = tf.cast(seed, "int32")
    if rows is None:
        return _draw((columns,), seed)
    if not on_several_devices():
        return _draw((rows, columns), seed)
    start, total = rows_of_all_devices(rows)
    return _draw((total, columns), seed)[start : start + rows]


def random_order(seed, first):
    """Places in a random order, the same on all devices."""
    seed = tf.random.experimental.stateless_fold_in(tf.cast(seed, "int32"), 1)
    keys = tf.random.stateless_uniform(tf.shape(first), seed)
    return tf.argsort(tf.where(first, keys, 1.0 + keys))


def _draw(shape, seed):
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype="int64"
    )
