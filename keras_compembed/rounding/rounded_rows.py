"""A table held as packed integers and scales; rows are floats when read."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import gather_fields
from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import unpack_integers
from keras_compembed.utils.chunks import of_all_ids
from keras_compembed.utils.chunks import split_rows
from keras_compembed.utils.custom_gradient import custom_gradient

# Numbers of rows that are floats at once.
_CHUNK_ELEMENTS = 1 << 22


class RoundedRows:
    """Reads and writes a rounded table."""

    def __init__(
        self, packed_rows, scales, scale_unit, width, bits, block_size
    ):
        self.packed_rows = packed_rows
        self.scales = scales
        self.scale_unit = scale_unit
        self.width = width
        self.bits = bits
        self.block_size = block_size

    def integers(self, ids):
        """Integers, int8 `(ids, width)`, of a tensor of ids."""
        packed = tf.gather(self.packed_rows.value, ids)
        return unpack_tensor(packed, self.width, self.bits)

    def float_scales(self, ids):
        """Scales, float32 `(ids, blocks)`."""
        scales = tf.cast(tf.gather(self.scales.value, ids), tf.float32)
        return scales * tf.convert_to_tensor(self.scale_unit.value)

    def read(self, ids):
        """Rows, float32 `(ids, width)`."""
        return multiply_blocks(
            tf.cast(self.integers(ids), tf.float32),
            self.float_scales(ids),
            self.block_size,
        )

    def read_all(self):
        """All rows, float32 `(rows, width)`."""
        return of_all_ids(self.read, self.packed_rows.shape[0])

    def score(self, vectors):
        """Products `(vectors, rows)` with vectors `(vectors, width)`."""
        num_rows = self.packed_rows.shape[0]
        size = max(1, _CHUNK_ELEMENTS // self.width)
        if num_rows <= size:
            rows = tf.cast(self.read_all(), vectors.dtype)
            return tf.matmul(vectors, rows, transpose_b=True)
        return tf.transpose(self._score_in_parts(vectors, num_rows, size))

    def _score_in_parts(self, vectors, num_rows, size):
        def read(ids, dtype):
            return tf.cast(self.read(ids), dtype)

        @custom_gradient
        def score(vectors):
            scores = of_all_ids(
                lambda ids: tf.matmul(
                    read(ids, vectors.dtype), vectors, transpose_b=True
                ),
                num_rows,
                size,
            )

            def gradient(upstream):
                ids = tf.expand_dims(tf.range(num_rows), 1)

                def add(total, part):
                    ids, upstream = part
                    rows = read(ids[:, 0], upstream.dtype)
                    return total + tf.matmul(upstream, rows, transpose_a=True)

                return tf.foldl(
                    add,
                    (
                        split_rows(ids, num_rows, size),
                        split_rows(upstream, num_rows, size),
                    ),
                    tf.zeros_like(vectors),
                    parallel_iterations=1,
                )

            return scores, gradient

        return score(vectors)

    def sum_rows(self, ids, weights):
        """Weighted sums of rows, `(groups, width)`."""
        flat = tf.reshape(ids, (-1,))
        if self.scales.shape[1] > 1:
            return sum_groups(self.read(flat), weights)
        scales = tf.reshape(self.float_scales(flat), tf.shape(ids))
        weights = weights * tf.cast(scales, weights.dtype)
        return sum_groups(self.integers(flat), weights)

    def table(self):
        """The `RoundedTable` held."""
        to_array = keras.ops.convert_to_numpy
        return RoundedTable(
            unpack_integers(to_array(self.packed_rows), self.width, self.bits),
            to_array(self.scales),
            to_array(self.scale_unit)[()],
            self.block_size,
        )

    def assign(self, table):
        """Sets all rows to those of a `RoundedTable`."""
        self.packed_rows.assign(pack_integers(table.integers, self.bits))
        self.scales.assign(table.scales)
        self.scale_unit.assign(table.unit)


def unpack_tensor(packed, width, bits):
    """Undoes `pack_integers`, in TensorFlow ops."""
    if bits == 8:
        return tf.cast(packed, tf.int8)
    digits = unpack_integers(
        np.arange(256, dtype="uint8")[:, None], 8 // bits, bits
    )
    return gather_fields(packed, digits, width)


def multiply_blocks(rows, scales, block_size):
    """Rows `(ids, width)` times scales `(ids, blocks)`, block by block."""
    if scales.shape[1] > 1:
        scales = tf.repeat(scales, block_size, axis=1)[:, : rows.shape[1]]
    return rows * scales


def sum_groups(rows, weights):
    """Weighted sums of rows, group by group."""
    shape = tf.concat([tf.shape(weights), [rows.shape[1]]], axis=0)
    rows = tf.reshape(tf.cast(rows, weights.dtype), shape)
    sums = tf.matmul(tf.expand_dims(weights, 1), rows)
    return tf.squeeze(sums, 1)
