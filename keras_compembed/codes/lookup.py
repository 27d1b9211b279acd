"""Codes and codewords read with TensorFlow ops, rows on demand."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode

# Codewords summed at once: wide enough for XLA to fuse the look-ups into one
# loop, narrow enough that the temporary stays a small multiple of the output.
_GROUP = 4
# Up to here a one-hot product beats a scatter in the gradient.
_ONE_HOT_CODEBOOK_SIZE = 64


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


def sum_codewords(codebooks, subcodes):
    """Sum of the codewords that subcodes name (Shu & Nakayama, equation 1).

    The gradient is dense in the codebooks, so that an id met twice counts
    twice under every optimizer.

    Args:
        codebooks: Float tensor `(num_codebooks, codebook_size, output_dim)`.
        subcodes: int32 tensor `(ids, num_codebooks)`.

    Returns:
        Tensor of shape `(ids, output_dim)` and the codebooks' dtype. Memory
        beyond it is O(ids * num_codebooks) and a fixed multiple of it.
    """
    num_codebooks, codebook_size, output_dim = codebooks.shape

    @tf.custom_gradient
    def compose(codebooks):
        table = tf.reshape(codebooks, (-1, output_dim))
        # int64: int32 sums have no GPU kernel.
        first = np.arange(num_codebooks, dtype="int64") * codebook_size
        places = tf.cast(subcodes, tf.int64) + first
        total = None
        for start in range(0, num_codebooks, _GROUP):
            part = tf.gather(table, places[:, start : start + _GROUP])
            part = tf.reduce_sum(part, axis=1)
            total = part if total is None else total + part

        def gradient(upstream):
            sums = [
                _sum_by_subcode(upstream, subcodes[:, m], codebook_size)
                for m in range(num_codebooks)
            ]
            return tf.stack(sums)

        return total, gradient

    return compose(codebooks)


def _sum_by_subcode(rows, subcode, codebook_size):
    """Sums rows of equal subcode: `(ids, d)` to `(codebook_size, d)`."""
    if codebook_size > _ONE_HOT_CODEBOOK_SIZE:
        return tf.math.unsorted_segment_sum(rows, subcode, codebook_size)
    one_hot = tf.one_hot(subcode, codebook_size, dtype=rows.dtype)
    return tf.matmul(one_hot, rows, transpose_a=True)
