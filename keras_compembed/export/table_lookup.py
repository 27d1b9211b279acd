"""How a `QuantizedEmbedding` is written down for LiteRT."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import gather_fields
from keras_compembed.export.flatbuffer import PACKED_RUNTIMES
from keras_compembed.export.flatbuffer import StoredTable
from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.export.row_chunks import ScoredInChunks
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import unpack_integers


class StoredRows:
    """Quantized rows of a layer in a file, and how they are read."""

    def __init__(self, layer, options):
        self.width = layer.width
        self._num_blocks = layer.num_blocks
        table = layer.rounded_table()
        self._block_size = table.block_size
        bits, integers = layer.bits, table.integers
        packed = pack_integers(integers, bits)
        self._bytes, packed_bits = None, None
        if bits == 8:
            self._integers = integers
        elif options.serves(PACKED_RUNTIMES[bits]):
            # The runtime reads whole bytes.
            room = -self.width % (8 // bits)
            self._integers = np.pad(integers, ((0, 0), (0, room)))
            packed_bits = bits
        else:
            self._integers = packed
            self._bytes = unpack_integers(
                np.arange(256, dtype="uint8")[:, None], 8 // bits, bits
            ).astype("float32")
        rows = StoredTable(
            f"{layer.path}/rows", self._integers, packed, packed_bits
        )
        self._scales = np.ascontiguousarray(table.scales)
        self._unit = table.unit
        scales = StoredTable(
            f"{layer.path}/scales",
            self._scales,
            self._scales.view("uint8"),
            unit=self._unit,
        )
        self.tables = [rows, scales]
        self.num_bytes = packed.size + scales.packed.size

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


class TracedTable(ScoredInChunks):
    """Stands in for `QuantizedEmbedding.embed` while a model is converted."""

    def __init__(self, layer, options):
        self.rows = StoredRows(layer, options)
        self.tables = self.rows.tables
        self._options = options
        self.projection = None
        if layer.projection is not None:
            projection = keras.ops.convert_to_numpy(layer.projection)
            self.projection = projection.astype("float32")
        self._scored = RowChunks(layer.input_dim, layer.width)
        self.chunks = RowChunks(layer.input_dim, layer.output_dim)

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        rows = self.rows.read(tf.cast(ids, tf.int32))
        if self.projection is None:
            return rows
        return tf.matmul(rows, self._options.note(self.projection))

    def score_chunks(self, vectors):
        """Yields logits of vectors, for a chunk of ids at a time."""
        vectors = tf.cast(vectors, tf.float32)
        if self.projection is not None:
            projection = self._options.note(self.projection)
            vectors = tf.matmul(vectors, projection, transpose_b=True)
        for ids in self._scored.ids(vectors):
            integers, scales = self.rows.integers(ids), self.rows.scales(ids)
            has_blocks = scales.shape[1] > 1
            if has_blocks:
                integers = self.rows.scale(integers, scales)
            scores = tf.matmul(vectors, integers, transpose_b=True)
            # Fewer numbers than rows have.
            yield scores if has_blocks else scores * tf.reshape(scales, [1, -1])
