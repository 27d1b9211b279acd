"""Codewords side by side."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.composition import Composition
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class ConcatComposition(Composition):
    """Codewords side by side, each a part of the vector."""

    # The code of a product quantizer. Where `output_dim` is no multiple of
    # `num_codebooks`, the first codewords are one wider than the rest.

    def set_shape(self, num_codebooks, codebook_size, output_dim):
        require(
            num_codebooks <= output_dim,
            "`num_codebooks` must be at most `output_dim` with 'concat'.",
            num_codebooks=num_codebooks,
            output_dim=output_dim,
        )
        super().set_shape(num_codebooks, codebook_size, output_dim)

    @property
    def codebooks_shape(self):
        return self.codebook_size, self.output_dim

    def codewords(self, codebooks):
        parts = split_columns(codebooks, self.num_codebooks)
        return tf.transpose(parts, (1, 0, 2))

    def call(self, codewords):
        return merge_columns(codewords, self.output_dim)

    def sum_counts(self, codebooks, counts):
        # Part by part: folded codebooks are mostly zeros.
        return self.compose_picks(codebooks, counts)

    def fold(self, codebooks):
        own = np.arange(self.num_codebooks)[:, None, None] == part_of_column(
            self.output_dim, self.num_codebooks
        )
        return tf.where(own, codebooks[None], 0.0)


def part_of_column(width, num_parts):
    """Which of so many parts, as even as can be, each column belongs to."""
    return np.repeat(np.arange(num_parts), _part_widths(width, num_parts))


def split_columns(matrix, num_parts):
    """Parts `(rows, num_parts, width)` of a matrix's columns."""
    width = matrix.shape[-1]
    widths = _part_widths(width, num_parts)
    if width % num_parts == 0:
        return tf.reshape(matrix, (-1, num_parts, widths[0]))
    # Zeros are taken from one column more.
    columns = np.full((num_parts, widths[0]), width)
    columns[_is_column(widths)] = np.arange(width)
    return tf.gather(tf.pad(matrix, ((0, 0), (0, 1))), columns, axis=1)


def merge_columns(parts, width):
    """The matrix `(rows, width)` that `split_columns` made parts of."""
    _, num_parts, part_width = parts.shape
    matrix = tf.reshape(parts, (-1, num_parts * part_width))
    if width % num_parts == 0:
        return matrix
    columns = np.flatnonzero(_is_column(_part_widths(width, num_parts)))
    return tf.gather(matrix, columns, axis=1)


def _part_widths(width, num_parts):
    return width // num_parts + (np.arange(num_parts) < width % num_parts)


def _is_column(widths):
    return np.arange(widths[0]) < widths[:, None]
