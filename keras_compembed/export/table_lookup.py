"""How a `QuantizedEmbedding` is written down for LiteRT."""

import keras
import tensorflow as tf

from keras_compembed.export.export_options import DEFAULTS
from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.export.stored_rows import StoredRows


class TracedTable:
    """Stands in for `QuantizedEmbedding.embed` while a model is converted."""

    def __init__(self, layer, options=DEFAULTS):
        self.rows = StoredRows(layer, options)
        self._options = options
        self.projection = None
        if layer.projection is not None:
            projection = keras.ops.convert_to_numpy(layer.projection)
            self.projection = projection.astype("float32")
        self._chunks = RowChunks(layer.input_dim, layer.width)
        self._whole_rows = RowChunks(layer.input_dim, layer.output_dim)

    @property
    def tables(self):
        """List of `StoredTable`, what the file holds of rows."""
        return self.rows.tables

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        rows = self.rows.read(tf.cast(ids, tf.int32))
        if self.projection is None:
            return rows
        return tf.matmul(rows, self._options.note(self.projection))

    def embed_all(self, embed=None):
        """Vectors `(input_dim, output_dim)` of all ids."""
        return self._whole_rows.table(embed or self)

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        return self._chunks.score(*self._scores(vectors))

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""
        return self._chunks.top_ids(*self._scores(vectors), k)

    def _scores(self, vectors):
        """Vectors as wide as rows, and a function from ids to scores."""
        vectors = tf.cast(vectors, tf.float32)
        if self.projection is not None:
            projection = self._options.note(self.projection)
            vectors = tf.matmul(vectors, projection, transpose_b=True)

        def score(ids):
            integers, scales = self.rows.integers(ids), self.rows.scales(ids)
            if scales.shape[1] > 1:
                integers = self.rows.scale(integers, scales)
            scores = tf.matmul(vectors, integers, transpose_b=True)
            if scales.shape[1] > 1:
                return scores
            # Fewer numbers than rows have.
            return scores * tf.reshape(scales, [1, -1])

        return vectors, score
