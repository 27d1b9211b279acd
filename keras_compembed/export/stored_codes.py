"""How the codes of a `CodeEmbedding` are stored in LiteRT files, and read.

The file holds the packed bytes of the layer. Only rows looked up are unpacked:
before the gather, the converter would fold it into the table.
"""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import pack_codes
from keras_compembed.export.flatbuffer import StoredTable
from keras_compembed.export.one_hot_rows import split_digits


class StoredCodes:
    """The codes of a layer in a file.

    Args:
        layer: A built `CodeEmbedding`.

    Attributes:
        table: `StoredTable` to be found in the converted file.
        num_codebooks: Integer.
        codebook_size: Integer.
        per_byte: Integer, the subcodes in a byte, or 1 if they begin
            anywhere.
        is_aligned: Boolean, whether no subcode begins in one byte and ends
            in another.
    """

    def __init__(self, layer):
        self.num_codebooks = layer.num_codebooks
        self.codebook_size = layer.codebook_size
        self._bits = bits_per_subcode(self.codebook_size)
        self.is_aligned = self._bits in (1, 2, 4, 8)
        self.per_byte = 8 // self._bits if self._bits in (1, 2, 4) else 1
        packed = pack_codes(layer.codes, self.codebook_size)
        self.table = StoredTable(f"{layer.path}/codes", packed, packed)

    def read(self, ids, together=1):
        """Subcodes, int32 `(ids, num_codebooks)`, of a rank-1 tensor of ids.

        Args:
            ids: int32 tensor.
            together: `1` or `per_byte`. If more than one, so many subcodes
                are one number, the first its lowest digit.
        """
        rows = tf.gather(self.table.packed, ids)
        if self.per_byte == 1 and self._bits != 8:
            return _read_bits(rows, self.num_codebooks, self._bits)
        numbers = tf.cast(rows, tf.int32)
        if together == self.per_byte:
            return numbers
        digits = split_digits(self.codebook_size, self.per_byte)
        subcodes = tf.gather(digits.astype("uint8"), numbers)
        columns = rows.shape[1] * self.per_byte
        subcodes = tf.reshape(subcodes, (-1, columns))
        if columns > self.num_codebooks:
            # Not always: it would take as long as all the rest.
            subcodes = subcodes[:, : self.num_codebooks]
        return tf.cast(subcodes, tf.int32)


def _read_bits(rows, num_codebooks, bits):
    """Subcodes of packed rows, same as `codes.packing.unpack_rows`.

    By division and remainder, which LiteRT has, instead of shifts and masks,
    some of which it lacks.
    """
    first_bit = np.arange(num_codebooks, dtype="int32") * bits
    byte, shift = first_bit // 8, first_bit % 8
    last_byte = (first_bit[-1] + bits - 1) // 8
    values = tf.cast(tf.gather(rows, byte, axis=1), tf.int32)
    for step in range(1, -(-int(shift.max() + bits) // 8)):
        # A subcode that ends at the last byte needs no byte after it: what
        # the clipped index brings is taken away below.
        above = tf.gather(rows, np.minimum(byte + step, last_byte), axis=1)
        values += tf.cast(above, tf.int32) * 256**step
    if shift.any():
        values = tf.math.floordiv(values, 2**shift)
    return tf.math.floormod(values, 2**bits)
