"""Sums of codewords in a LiteRT file, by one of two graphs."""

import numpy as np
import tensorflow as tf

from keras_compembed.litert.one_hot_rows import OneHotRows

# Codebooks gathered at once where little memory is to be held.
_GROUP = 4


class RowSums:
    """Sums of codewords, one of each codebook.

    One-hot rows times codebooks are faster for small codebooks, codewords that
    are gathered and added up for large ones, and for a single id.
    """

    def __init__(self, codewords, codes, options):
        self._codewords = np.asarray(codewords, dtype="float32")
        self._codes, self._options, self._is_read = codes, options, False
        self._num_codebooks, self._size, self._width = codewords.shape
        self._group = self._num_codebooks
        self._is_product = self._size <= (32 if options.is_int8 else 16)
        if options.optimize_for == "memory":
            # What several ops read is no longer int8 once the file is loaded.
            if not options.is_int8:
                self._group = min(_GROUP, self._group)
            held = self._group * self._width
            self._is_product &= self._num_codebooks * self._size <= held
        if self._is_product:
            self._one_hot = OneHotRows(codes, self._codewords.size, options)

    @property
    def numbers_per_row(self):
        """Numbers held for each id while rows are summed."""
        if self._is_product:
            return self._one_hot.columns + self._width
        return (self._group + 1) * self._width

    def look_up(self, ids):
        """Sums `(ids, width)` for a rank-1 int32 tensor of ids."""
        if ids.shape[0] == 1 and not self._is_read:
            # Less is read. Ids that are read later find the same codewords.
            self._is_product &= self._options.is_int8
        self._is_read = True
        if self._is_product:
            matrix = self._one_hot.matrix(self._codewords)
            rows = tf.reshape(self._one_hot(ids), (-1, len(matrix)))
            return tf.matmul(rows, self._options.note(matrix))
        matrix, places = codewords_of_ids(
            self._codewords, self._codes, ids, self._options
        )
        if self._group >= self._num_codebooks:
            return tf.reduce_sum(tf.gather(matrix, places), axis=1)
        total = None
        for start in range(0, self._num_codebooks, self._group):
            part = places[:, start : start + self._group]
            if total is not None:
                # The runtime would look up all groups before it adds one up,
                # and hold them all: each has to wait for the one before, for
                # a zero that the converter does not know.
                part += tf.minimum(tf.cast(total[:1, :1] > 0, tf.int32), 0)
            part = tf.reduce_sum(tf.gather(matrix, part), axis=1)
            total = part if total is None else total + part
        return total


def codewords_of_ids(codewords, codes, ids, options):
    """All codewords as rows, and those `(ids, num_codebooks)` of some ids."""
    num_codebooks, codebook_size, width = codewords.shape
    flat = tf.constant(options.note(codewords.reshape(-1, width)))
    first = np.arange(num_codebooks, dtype="int32") * codebook_size
    return flat, codes.read(ids) + first
