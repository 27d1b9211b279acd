"""Codewords added up."""

import keras
import tensorflow as tf

from keras_compembed.codes.codeword_sums import decode_codes
from keras_compembed.codes.codeword_sums import sum_codewords
from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import sum_picks


@keras.saving.register_keras_serializable(package="keras_compembed")
class SumComposition(Composition):
    """The sum of the codewords (Shu & Nakayama, equation 1)."""

    def call(self, codewords):
        return tf.reduce_sum(codewords, axis=1)

    def compose_codes(self, codebooks, subcodes):
        return sum_codewords(codebooks, subcodes)

    def compose_picks(self, codebooks, picks):
        return sum_picks(codebooks, picks)

    def fold(self, codebooks):
        return codebooks

    def decode(self, codes, codebooks):
        return decode_codes(codes, codebooks)
