"""Features of ids, whose products with a matrix are vectors."""

import math

import numpy as np
import tensorflow as tf

from keras_compembed.litert.flatbuffer import UNPACK_RUNTIME
from keras_compembed.utils.sizes import WEIGHT_BYTES

# Part of what codes and codewords take that may be added to save time.
ROOM = {None: 0.02, "latency": math.inf, "size": 0, "memory": 0}
# Bytes of the ops that take subcodes out of bytes, and of all others.
_DIGIT_OPS, _OTHER_OPS = 690, 5000


def unflatten(rows, ids, width):
    """Rows of ids one after another, in the shape of the ids."""
    rows = tf.reshape(rows, tf.concat([tf.shape(ids), [width]], axis=0))
    rows.set_shape(ids.shape.concatenate(width))
    return rows


def join_weights(counts, weights):
    """Weights of ids, 0 for those that do not count; None if all are one."""
    if counts is None:
        return weights
    counts = tf.cast(counts, tf.float32)
    return counts if weights is None else counts * weights


def number_groups(ids):
    """The text of each id in a row, and the number of texts."""
    size = ids.shape[0]
    if size == 1:
        return tf.zeros_like(tf.reshape(ids, [-1])), 1
    if size is None:
        size = tf.shape(ids)[0]
    groups = tf.broadcast_to(tf.expand_dims(tf.range(size), 1), tf.shape(ids))
    return tf.reshape(groups, [-1]), size


def length_of(ids):
    """Ids of each text, as a float32 number or tensor."""
    return tf.cast(
        tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1], tf.float32
    )


def count_ids(counts):
    """How many ids count, float32 `(texts, 1)`, of booleans."""
    return tf.reduce_sum(tf.cast(counts, tf.float32), axis=1, keepdims=True)


class OneHotRows:
    """Rows of ids as one-hot vectors of their subcodes, side by side."""

    def __init__(self, codes, num_values, options):
        self._codes, self._options = codes, options
        self._together, per_byte = 1, codes.per_byte
        if per_byte > 1:
            added = (257 * per_byte - codes.codebook_size) * codes.codebook_size
            is_packed = options.serves(UNPACK_RUNTIME)
            added = added // 2 if is_packed else 4 * added
            # Of what takes subcodes out of bytes.
            added -= _DIGIT_OPS + 256 * per_byte
            own = codes.table.packed.nbytes + _OTHER_OPS
            own += WEIGHT_BYTES[options.quantize] * num_values
            if added <= ROOM[options.optimize_for] * own:
                self._together = per_byte
        values = 256 if self._together > 1 else codes.codebook_size
        digits = np.arange(values)[:, None] >> codes.bits * np.arange(
            self._together
        )
        digits %= 1 << codes.bits
        rows = digits[:, :, None] == np.arange(codes.codebook_size)
        rows = rows.reshape(values, -1).astype("int8")
        self._table = np.concatenate([rows, np.zeros_like(rows[:1])])
        columns = -(-codes.num_codebooks // self._together)
        self.columns = columns * rows.shape[1]

    def matrix(self, codewords):
        """Codewords `(columns, width)` that vectors are multiplied by."""
        flat = codewords.reshape(-1, codewords.shape[-1])
        return np.pad(flat, ((0, self.columns - len(flat)), (0, 0)))

    def __call__(self, ids, counts=None):
        """Vectors of ids, in parts; zeros where ids do not count."""
        if self._together > 1 or ids.shape.rank == 1:
            numbers = self._codes.read(ids, self._together)
        else:
            numbers = self._codes.read(tf.reshape(ids, [-1]))
            numbers = unflatten(numbers, ids, self._codes.num_codebooks)
        if counts is not None:
            counts = tf.expand_dims(counts, -1)
            numbers = tf.where(counts, numbers, len(self._table) - 1)
        if not self._options.serves(UNPACK_RUNTIME):
            return tf.gather(self._table.astype("float32"), numbers)
        self._options.unpacked.append(self._table)
        return tf.cast(tf.gather(self._table, numbers), tf.float32)
