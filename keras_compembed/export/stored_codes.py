"""How the codes of a `CodeEmbedding` are stored in LiteRT files, and read."""

import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.export.flatbuffer import StoredTable


class StoredCodes:
    """The codes of a layer in a file."""

    def __init__(self, layer):
        self.num_codebooks = layer.num_codebooks
        self.codebook_size = layer.codebook_size
        self._bits = bits_per_subcode(self.codebook_size)
        self.is_aligned = self._bits in (1, 2, 4, 8)
        self.per_byte = 8 // self._bits if self._bits in (1, 2, 4) else 1
        packed = pack_codes(layer.codes, self.codebook_size)
        self.table = StoredTable(f"{layer.path}/codes", packed, packed)

    def read(self, ids, together=1):
        """Subcodes, int32 `(ids, num_codebooks)`, of a rank-1 tensor of ids."""
        rows = tf.gather(self.table.packed, ids)
        if together > 1:
            return tf.cast(rows, tf.int32)
        return unpack_rows(rows, self.num_codebooks, self.codebook_size)
