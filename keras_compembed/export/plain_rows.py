"""How look-up layers without a form of their own are written for LiteRT."""

import tensorflow as tf

from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.layers.lookup_layer import LookupLayer


class PlainRows:
    """The methods of a layer, with other ones for what reads all rows."""

    def __init__(self, layer, embed=None):
        self._layer = layer
        self._chunks = RowChunks(layer.input_dim, layer.output_dim)
        self.embed = embed or layer.embed
        self.embed_all = self._own("embed_all") or self._embed_all
        self.score = self._own("score") or self._score
        self.top_ids = self._own("top_ids") or self._top_ids
        self.sum_rows = self._own("sum_rows")

    def _own(self, name):
        """A method that the layer does not have from its base, or None."""
        if getattr(type(self._layer), name) is getattr(LookupLayer, name):
            return None
        return getattr(self._layer, name)

    def _embed_all(self):
        # As the layer gives them while it is traced, between marks.
        return self._chunks.table(self._layer.embed)

    def _score(self, vectors):
        return self._chunks.score(vectors, self._scores(vectors))

    def _top_ids(self, vectors, k):
        return self._chunks.top_ids(vectors, self._scores(vectors), k)

    def _scores(self, vectors):
        def score(ids):
            rows = tf.cast(self.embed(ids), vectors.dtype)
            return tf.matmul(vectors, rows, transpose_b=True)

        return score
