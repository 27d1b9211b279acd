"""Graphs that sum the codewords of a row, in ops that LiteRT has."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_compembed.litert.one_hot_rows import OneHotRows
from keras_compembed.litert.one_hot_rows import split_digits


@dataclasses.dataclass(frozen=True)
class Product:
    """One-hot rows times codebooks."""

    together: int = 1

    def __call__(self, codewords, numbers, options):
        """Sums `(ids, width)`."""
        codewords = _whole_numbers(codewords, self.together)
        codebook_size, width = codewords.shape[1:]
        one_hot = OneHotRows(codebook_size, self.together, options)
        rows = one_hot(numbers)
        flat = options.note(codewords.reshape(-1, width))
        return tf.matmul(tf.reshape(rows, (-1, len(flat))), flat)


@dataclasses.dataclass(frozen=True)
class Gathers:
    """Codewords gathered and added up, some codebooks at a time."""

    together: int = 1
    group: int = 8

    def __call__(self, codewords, numbers, options):
        codewords = _whole_numbers(codewords, self.together)
        codewords = _sums_of_digits(codewords, self.together)
        num_codebooks, codebook_size, width = codewords.shape
        flat = tf.constant(options.note(codewords.reshape(-1, width)))
        first = np.arange(num_codebooks, dtype="int32") * codebook_size
        places = numbers + first
        if self.group >= num_codebooks:
            return tf.reduce_sum(tf.gather(flat, places), axis=1)
        total = None
        for start in range(0, num_codebooks, self.group):
            part = places[:, start : start + self.group]
            if total is not None:
                # The runtime would look up all groups before it adds one up,
                # and hold them all: each has to wait for the one before, for
                # a zero that the converter does not know.
                part += tf.minimum(tf.cast(total[:1, :1] > 0, tf.int32), 0)
            part = tf.reduce_sum(tf.gather(flat, part), axis=1)
            total = part if total is None else total + part
        return total


def _whole_numbers(codewords, together):
    """Codebooks of zeros added until numbers name as many."""
    missing = -len(codewords) % together
    return np.pad(codewords, ((0, missing), (0, 0), (0, 0)))


def _sums_of_digits(codewords, together):
    """Codewords `(numbers, values, width)` that numbers name."""
    if together == 1:
        return codewords
    num_codebooks, codebook_size, width = codewords.shape
    digits = split_digits(codebook_size, together)
    # A digit that no code has.
    digits = np.minimum(digits, codebook_size - 1)
    groups = codewords.reshape(-1, together, codebook_size, width)
    return sum(groups[:, place, digits[:, place]] for place in range(together))
