"""A table held as packed codes; rows are composed when they are read."""

import keras
import tensorflow as tf

from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.codes.packing import unpack_rows


class CodedRows:
    """Reads and writes the codes of a table, and composes its rows.

    Args:
        packed_codes: uint8 variable `(rows, bytes_per_row)`.
        codebooks: Float variable of the composition's `codebooks_shape`.
        composition: A built `Composition`.
    """

    def __init__(self, packed_codes, codebooks, composition):
        self.packed_codes = packed_codes
        self.codebooks = codebooks
        self.composition = composition
        self.num_rows = packed_codes.shape[0]
        self._code_shape = composition.num_codebooks, composition.codebook_size

    def subcodes(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`, of a tensor of ids."""
        rows = tf.gather(self.packed_codes.value, ids)
        return unpack_rows(rows, *self._code_shape)

    def compose(self, subcodes):
        """Vectors `(ids, output_dim)` of int32 subcodes."""
        return self.composition.compose_codes(
            tf.convert_to_tensor(self.codebooks.value), subcodes
        )

    def compose_picks(self, picks):
        """Vectors of picks `(ids, num_codebooks, codebook_size)`."""
        codebooks = tf.convert_to_tensor(self.codebooks.value)
        return self.composition.compose_picks(
            codebooks, tf.cast(picks, codebooks.dtype)
        )

    @property
    def codes(self):
        """Codes of all rows, an unsigned array `(rows, num_codebooks)`."""
        return unpack_codes(
            keras.ops.convert_to_numpy(self.packed_codes), *self._code_shape
        )

    def assign(self, codes):
        """Sets the codes of all rows."""
        self.packed_codes.assign(pack_codes(codes, self._code_shape[1]))

    def decode(self, codes):
        """Rows that codes stand for: arrays in, float32 array out."""
        return self.composition.decode(
            codes, keras.ops.convert_to_numpy(self.codebooks)
        )
