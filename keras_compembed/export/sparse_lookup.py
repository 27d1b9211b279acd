"""How a `SparseEmbedding` is written down for LiteRT."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.compressed_rows import CompressedRows
from keras_compembed.export.compressed_rows import dense_rows
from keras_compembed.export.compressed_rows import ones_like_ids
from keras_compembed.export.compressed_rows import round_values
from keras_compembed.layers.sparse_embedding import RowPlaces

# Windows of the longest row are read up to so many times the mean row, and up
# to so many numbers, if the number of ids is known.
_WINDOW_OF_MEANS = 4
_WINDOW = 16


class TracedSparseRows:
    """Stands in for `SparseEmbedding.embed` while a model is converted."""

    def __init__(self, layer, options):
        self._layer = layer
        lengths, columns, in_row, values = layer.compressed_rows()
        places = RowPlaces.of_lengths(lengths)
        if layer.scales is None:
            values, scales, step = round_values(
                np.append(values.astype("float64"), 0),
                np.append(in_row, 0),
                layer.output_dim,
                options.quantize,
            )
        else:
            scales = keras.ops.convert_to_numpy(layer.scales)
            values, step = np.append(values, np.int8(0)), np.float32(1)
        self.scales = None if scales is None else scales.astype("float32")
        self.rows = CompressedRows(
            places,
            lengths,
            np.append(columns, 0),
            values,
            layer.part_width,
            step,
        )
        self._has_windows = self.rows.longest <= max(
            _WINDOW, _WINDOW_OF_MEANS * self.rows.mean_length
        )

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        parts = self._layer.parts(ids)
        if parts.shape[0] is not None and self._has_windows:
            columns, values = self.rows.windows(parts)
            owners = tf.cumsum(ones_like_ids(parts), exclusive=True)
            owners = tf.expand_dims(owners, 0)
            # What is beyond a row adds 0 to its first column.
        else:
            owners, columns, values = self.rows.numbers(parts)
        dense = dense_rows(
            owners, columns, values, tf.shape(parts), self._layer.part_width
        )
        return self._layer.join(dense, self.scales)
