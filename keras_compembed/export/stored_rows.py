"""How LiteRT files store rows of a `QuantizedEmbedding`."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import gather_fields
from keras_compembed.export.flatbuffer import PACKED_RUNTIMES
from keras_compembed.export.flatbuffer import StoredTable
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import unpack_integers


class StoredRows:
    """Rounded rows of a layer in a file."""

    def __init__(self, layer, options):
        self.width = layer.width
        self._num_blocks = layer.num_blocks
        table = layer.rounded_table()
        self._block_size = table.block_size
        bits, integers = layer.bits, table.integers
        packed = pack_integers(integers, bits)
        self._bytes = None
        if bits == 8:
            self._integers = integers
            rows = StoredTable(f"{layer.path}/rows", integers, packed)
        elif _has_packed_tables(options, bits):
            # The runtime reads whole bytes.
            room = -self.width % (8 // bits)
            self._integers = np.pad(integers, ((0, 0), (0, room)))
            rows = StoredTable(
                f"{layer.path}/rows", self._integers, packed, bits
            )
        else:
            self._integers = packed
            self._bytes = unpack_integers(
                np.arange(256, dtype="uint8")[:, None], 8 // bits, bits
            ).astype("float32")
            rows = StoredTable(f"{layer.path}/rows", packed, packed)
        self._scales = np.ascontiguousarray(table.scales)
        self._unit = table.unit
        scales = StoredTable(
            f"{layer.path}/scales",
            self._scales,
            self._scales.view("uint8"),
            unit=self._unit,
        )
        self.tables = [rows, scales]

    @property
    def num_bytes(self):
        """Bytes that integers and scales take in a file."""
        return sum(table.packed.size for table in self.tables)

    def read(self, ids):
        """Rows `(ids, width)` of a rank-1 tensor of ids."""
        return self.scale(self.integers(ids), self.scales(ids))

    def integers(self, ids):
        """Their integers, float32 `(ids, width)`."""
        numbers = tf.gather(self._integers, ids)
        if self._bytes is not None:
            return gather_fields(numbers, self._bytes, self.width)
        numbers = tf.cast(numbers, tf.float32)
        if numbers.shape[1] > self.width:
            numbers = numbers[:, : self.width]
        return numbers

    def scales(self, ids):
        """Their scales, float32 `(ids, num_blocks)`."""
        return tf.cast(tf.gather(self._scales, ids), tf.float32) * self._unit

    def scale(self, integers, scales):
        """Integers `(ids, width)` times the scales of their blocks."""
        if self._num_blocks == 1:
            return integers * scales
        columns = self._num_blocks * self._block_size
        if columns > self.width:
            # The last block is shorter.
            room = [[0, 0], [0, columns - self.width]]
            integers = tf.pad(integers, room)
        blocks = (-1, self._num_blocks, self._block_size)
        rows = tf.reshape(integers, blocks) * tf.expand_dims(scales, 2)
        return tf.reshape(rows, (-1, columns))[:, : self.width]


def _has_packed_tables(options, bits):
    """Whether the oldest runtime to serve unpacks tables of so few bits."""
    oldest = options.min_runtime
    return oldest is None or oldest >= PACKED_RUNTIMES[bits]
