"""How the codes of a `CodeEmbedding` are stored in LiteRT files, and read.

Codes of 2 or 4 bits become tables of int2 or int4, which the runtime unpacks;
others become rows of bytes, unpacked by arithmetic. Only rows looked up are
unpacked: before the gather, the converter would fold it into the table.
"""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.export.flatbuffer import CodeTable

# Oldest runtimes whose EMBEDDING_LOOKUP reads tables of so many bits.
PACKED_LOOKUP_RUNTIME = {2: (2, 21, 0), 4: (2, 18, 0)}
# Bits of a byte of such tables that are stored inverted.
FLIPPED_BITS = {2: 0xAA, 4: 0x88}


def choose_bits(codebook_size, min_runtime=None):
    """Bits of the packed type that holds the codes, or None for plain bytes.

    Args:
        codebook_size: Integer from 2 to 65536.
        min_runtime: Optional tuple of integers, the oldest runtime to serve.
    """
    # A pair of one-bit subcodes is one two-bit subcode.
    bits = max(2, bits_per_subcode(codebook_size))
    needed = PACKED_LOOKUP_RUNTIME.get(bits)
    if needed is None or (min_runtime is not None and min_runtime < needed):
        return None
    return bits


class StoredCodes:
    """The codes of a layer in a file.

    Args:
        layer: A built `CodeEmbedding`.
        min_runtime: Optional tuple of integers, the oldest runtime to serve.
        may_pair: Boolean. Whether two subcodes of one bit may be read as one
            of two bits, for which `codebooks` makes codebooks.

    Attributes:
        table: `CodeTable` to be found in the converted file.
        byte_table: Same, of the same bytes read as they are, or None where
            `table` is.
        num_codebooks: Integer, the subcodes read of an id.
        codebook_size: Integer, the values that one may have.
    """

    def __init__(self, layer, min_runtime=None, may_pair=True):
        self.num_codebooks = layer.num_codebooks
        self.codebook_size = layer.codebook_size
        packed = pack_codes(layer.codes, self.codebook_size)
        bits = choose_bits(self.codebook_size, min_runtime)
        self._pairs = False
        if bits is not None and bits_per_subcode(self.codebook_size) == 1:
            self._pairs = may_pair
            bits = bits if may_pair else None
        if self._pairs:
            self.num_codebooks = -(-self.num_codebooks // 2)
            self.codebook_size = 4
        if bits is None:
            converted = packed
        else:
            # Padding included: the runtime misreads rows of broken bytes.
            columns = packed.shape[1] * 8 // bits
            converted = unpack_codes(packed, columns, 2**bits).astype("int8")
            converted -= 2 ** (bits - 1)
            # Two's complement of a code less half its range: the top bit of
            # each field flipped.
            packed = packed ^ np.uint8(FLIPPED_BITS[bits])
        self.table = CodeTable(layer.path, converted, packed, bits)
        self.byte_table = None
        if bits is not None:
            self.byte_table = CodeTable(layer.path, packed, packed, None)

    def codebooks(self, codewords):
        """Codewords whose sum is the same, one for each subcode read.

        Args:
            codewords: Array `(num_codebooks, codebook_size, width)` of the
                layer's codebooks.
        """
        return _pair_codebooks(codewords) if self._pairs else codewords

    def read_bytes(self, ids):
        """Bytes of `byte_table`, int32 `(..., bytes)`, of a tensor of ids."""
        return tf.cast(tf.gather(self.byte_table.converted, ids), tf.int32)

    def read(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`, of a rank-1 tensor of ids."""
        rows = tf.gather(self.table.converted, ids)
        if self.table.bits is None:
            bits = bits_per_subcode(self.codebook_size)
            return _read_bits(rows, self.num_codebooks, bits)
        subcodes = tf.cast(rows, tf.float32)[:, : self.num_codebooks]
        return tf.cast(subcodes + 2.0 ** (self.table.bits - 1), tf.int32)


def _read_bits(rows, num_codebooks, bits):
    """Subcodes of packed rows, same as `codes.packing.unpack_rows`.

    By division and remainder, which LiteRT has, instead of shifts and masks,
    some of which it lacks.
    """
    if bits == 8:
        return tf.cast(rows, tf.int32)
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


def _pair_codebooks(codebooks):
    """Codebooks of two codewords, two by two, as codebooks of four."""
    if len(codebooks) % 2:
        codebooks = np.concatenate([codebooks, np.zeros_like(codebooks[:1])])
    low, high = codebooks[0::2], codebooks[1::2]
    pairs = high[:, :, None] + low[:, None, :]
    return pairs.reshape(len(low), 4, -1)
