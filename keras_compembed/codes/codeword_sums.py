"""Sums of the codewords that codes name, in TensorFlow and NumPy."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import check_codes
from keras_compembed.utils.custom_gradient import custom_gradient

# Codewords gathered at once: wide enough for XLA to fuse the look-ups into one
# loop, narrow enough that the temporary stays a small multiple of the output.
_GROUP = 4
# Columns of a one-hot matrix: a fixed amount of memory for each id.
_ONE_HOT_WIDTH = 256
# Up to here a one-hot product beats a scatter in the gradient, and gathers on
# a CPU.
_PRODUCT_CODEBOOK_SIZE = {"gradient": 64, "sum": 16}


def sum_codewords(codebooks, subcodes):
    """Sum of the codewords that subcodes name (Shu & Nakayama, equation 1)."""
    num_codebooks, codebook_size, output_dim = codebooks.shape

    @custom_gradient
    def compose(codebooks):
        table = tf.reshape(codebooks, (-1, output_dim))
        if _sums_by_product(codebook_size):
            total = _sum_by_product(table, subcodes, codebook_size)
        else:
            total = _sum_by_gather(table, subcodes, codebook_size)

        def gradient(upstream):
            if codebook_size <= _PRODUCT_CODEBOOK_SIZE["gradient"]:
                parts = [
                    tf.matmul(one_hot, upstream, transpose_a=True)
                    for _, one_hot in _one_hots(
                        subcodes, codebook_size, upstream.dtype
                    )
                ]
            else:
                parts = [
                    tf.math.unsorted_segment_sum(
                        upstream, subcodes[:, m], codebook_size
                    )
                    for m in range(num_codebooks)
                ]
            return tf.reshape(tf.concat(parts, axis=0), codebooks.shape)

        return total, gradient

    return compose(codebooks)


def _sums_by_product(codebook_size):
    # GPUs gather fast, and round products to TensorFloat-32.
    return codebook_size <= _PRODUCT_CODEBOOK_SIZE[
        "sum"
    ] and not tf.config.list_physical_devices("GPU")


def _sum_by_product(table, subcodes, codebook_size):
    total = None
    for rows, one_hot in _one_hots(subcodes, codebook_size, table.dtype):
        part = tf.matmul(one_hot, table[rows])
        total = part if total is None else total + part
    return total


def _sum_by_gather(table, subcodes, codebook_size):
    num_codebooks = subcodes.shape[1]
    # int64: int32 sums have no GPU kernel.
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    places = tf.cast(subcodes, tf.int64) + first
    total = None
    for start in range(0, num_codebooks, _GROUP):
        part = tf.gather(table, places[:, start : start + _GROUP])
        part = tf.reduce_sum(part, axis=1)
        total = part if total is None else total + part
    return total


def _one_hots(subcodes, codebook_size, dtype):
    """Yields `(slice of the codewords, one-hot matrix)`, by codebooks."""
    num_codebooks = subcodes.shape[1]
    group = max(1, _ONE_HOT_WIDTH // codebook_size)
    for start in range(0, num_codebooks, group):
        stop = min(start + group, num_codebooks)
        one_hot = tf.one_hot(
            subcodes[:, start:stop], codebook_size, dtype=dtype
        )
        width = (stop - start) * codebook_size
        yield (
            slice(start * codebook_size, stop * codebook_size),
            tf.reshape(one_hot, (-1, width)),
        )


def decode_codes(codes, codebooks):
    """Sums the codewords that codes name."""
    num_codebooks, codebook_size, width = codebooks.shape
    codes = check_codes(codes, codebook_size, shape=(None, num_codebooks))
    codebooks = np.asarray(codebooks, dtype="float32")
    rows = np.zeros((len(codes), width), dtype="float32")
    for codebook, subcodes in zip(codebooks, codes.T, strict=True):
        rows += codebook[subcodes]
    return rows
