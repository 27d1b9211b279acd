"""Sums of the codewords that codes name, in TensorFlow and NumPy."""

import functools
import operator

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import check_codes
from keras_compembed.utils.custom_gradient import custom_gradient

# Codewords gathered at once: wide enough for XLA to fuse the look-ups into one
# loop, narrow enough that the temporary stays a small multiple of the output.
_GROUP = 4
# Columns of a one-hot matrix: a fixed amount of memory for each id.
_ONE_HOT_WIDTH = 256
# Codebook sizes up to which a one-hot product beats a scatter in the gradient,
# and gathers on a CPU.
_SCATTER_ABOVE, _GATHER_ABOVE = 64, 16


def sum_codewords(codebooks, subcodes):
    """Sum of the codewords that subcodes name (Shu & Nakayama, equation 1)."""
    num_codebooks, codebook_size, output_dim = codebooks.shape

    @custom_gradient
    def compose(codebooks):
        table = tf.reshape(codebooks, (-1, output_dim))
        # GPUs gather fast, and round products to TensorFloat-32.
        has_gpu = tf.config.list_physical_devices("GPU")
        if has_gpu or codebook_size > _GATHER_ABOVE:
            sums = _gathered_sums(table, subcodes, codebook_size)
        else:
            one_hots = _one_hots(subcodes, codebook_size, table.dtype)
            sums = (tf.matmul(x, table[rows]) for rows, x in one_hots)
        total = functools.reduce(operator.add, sums)

        def gradient(upstream):
            if codebook_size <= _SCATTER_ABOVE:
                one_hots = _one_hots(subcodes, codebook_size, upstream.dtype)
                parts = [
                    tf.matmul(x, upstream, transpose_a=True)
                    for _, x in one_hots
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


def _gathered_sums(table, subcodes, codebook_size):
    """Yields sums of a few codewords of each id."""
    num_codebooks = subcodes.shape[1]
    # int64: int32 sums have no GPU kernel.
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    places = tf.cast(subcodes, tf.int64) + first
    for start in range(0, num_codebooks, _GROUP):
        part = tf.gather(table, places[:, start : start + _GROUP])
        yield tf.reduce_sum(part, axis=1)


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


def count_codes(subcodes, weights, codebook_size):
    """Weighted counts of subcodes."""
    num_codebooks = subcodes.shape[1]
    width = num_codebooks * codebook_size
    groups, length = tf.unstack(tf.shape(weights))
    # int64: there may be more counts than int32 numbers, and int32 sums have
    # no GPU kernel. Cast here: LiteRT takes no int64 shapes apart.
    groups = tf.cast(groups, tf.int64)
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    start = tf.repeat(tf.range(groups) * width, length)
    places = tf.cast(subcodes, tf.int64) + first + tf.expand_dims(start, 1)
    values = tf.repeat(tf.reshape(weights, (-1,)), num_codebooks)
    # Much faster of flat tensors.
    counts = tf.math.unsorted_segment_sum(
        values, tf.reshape(places, (-1,)), groups * width
    )
    return tf.reshape(counts, (-1, num_codebooks, codebook_size))
