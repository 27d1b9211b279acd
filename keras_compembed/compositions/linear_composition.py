"""Codewords added up, then mapped."""

import keras
import tensorflow as tf

from keras_compembed.codes.codeword_sums import sum_codewords
from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import orthogonal
from keras_compembed.compositions.composition import sum_picks


@keras.saving.register_keras_serializable(package="keras_compembed")
class LinearComposition(Composition):
    """The sum of the codewords times a matrix.

    `E(id) = H' sum_m codebooks[m, codes[id, m]]`

    Codebooks times the matrix are codebooks of a plain sum. Exported files
    hold those, or codewords and matrix where these are smaller.

    Example:

    >>> layer = kc.CodeEmbedding(
    ...     1000, 64, num_codebooks=8, composition=LinearComposition(16)
    ... )
    >>> layer.build()
    >>> layer.codebooks.shape
    TensorShape([8, 16, 16])

    Args:
        code_dim, **kwargs: Same as for `Composition`.

    References:
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464), section
          2.2
    """

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(self.code_dim, self.output_dim),
            initializer=orthogonal,
            autocast=False,
            name="kernel",
        )

    def call(self, codewords):
        return tf.matmul(tf.reduce_sum(codewords, axis=1), self.kernel)

    def compose_codes(self, codebooks, subcodes):
        return tf.matmul(sum_codewords(codebooks, subcodes), self.kernel)

    def compose_picks(self, codebooks, picks):
        return tf.matmul(sum_picks(codebooks, picks), self.kernel)

    def sum_counts(self, codebooks, counts):
        return self.compose_picks(codebooks, counts)

    def fold(self, codebooks):
        # Codebooks of a learner are float32, whatever dtype it trains in.
        kernel = tf.cast(self.kernel, codebooks.dtype)
        return tf.matmul(codebooks, kernel)
