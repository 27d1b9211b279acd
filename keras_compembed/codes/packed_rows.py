"""Packed codes read with TensorFlow ops, rows on demand."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode


def unpack_rows(rows, num_codebooks, codebook_size):
    """Subcodes of packed rows; `packing.unpack_codes` on tensors.

    Args:
        rows: uint8 tensor of shape `(ids, bytes_per_row)`.
        num_codebooks: Integer, subcodes a row.
        codebook_size: Integer from 2 to 65536.

    Returns:
        int32 tensor of shape `(ids, num_codebooks)`.
    """
    bits = bits_per_subcode(codebook_size)
    if bits == 8:
        return tf.cast(rows, tf.int32)
    first_bit = np.arange(num_codebooks, dtype="int32") * bits
    byte, shift = first_bit // 8, first_bit % 8
    last_byte = (first_bit[-1] + bits - 1) // 8
    values = tf.cast(tf.gather(rows, byte, axis=-1), tf.int32)
    for step in range(1, -(-int(shift.max() + bits) // 8)):
        # A subcode that ends at the last byte needs no byte after it: what
        # the clipped index brings is masked away below.
        above = tf.gather(rows, np.minimum(byte + step, last_byte), axis=-1)
        above = tf.bitwise.left_shift(tf.cast(above, tf.int32), 8 * step)
        values = tf.bitwise.bitwise_or(values, above)
    values = tf.bitwise.right_shift(values, shift)
    return tf.bitwise.bitwise_and(values, 2**bits - 1)
