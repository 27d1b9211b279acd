"""Figures of one layer that change while it is trained."""

import numpy as np
import tensorflow as tf

from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.size_report import size_report
from keras_compembed.reports.table_rows import TableRows

_ROWS_AT_A_TIME = 1024


class LayerSummary:
    """Reads figures of a layer, and what changed since the last time."""

    def __init__(self, layer, original=None, num_rows=10_000, seed=0):
        self._layer = layer
        self._rows = None
        if original is not None:
            ids = np.arange(layer.input_dim, dtype="int32")
            if len(ids) > num_rows:
                rng = np.random.default_rng(seed)
                ids = np.sort(rng.choice(ids, num_rows, replace=False))
            self._ids = ids
            self._rows = TableRows("reference", original)[ids]
        self._last = self._stored()

    def read(self):
        """Dict from the name of a figure to a number."""
        # The first row is of the layer itself, others of layers in it.
        size, *_ = size_report(self._layer).embeddings
        figures = {"bytes": size.stored_bytes}
        if size.num_nonzeros is not None:
            numbers = size.input_dim * size.num_anchors
            figures["nonzeros"] = size.num_nonzeros
            figures["density"] = size.num_nonzeros / numbers
        if self._rows is not None:
            figures["relative_error"] = self._relative_error()
        stored, last = self._stored(), self._last
        self._last = stored
        if stored is None:
            return figures
        kind = "codes" if isinstance(self._layer, CodeEmbedding) else "rows"
        if last is not None:
            changed = (stored != last).any(axis=1)
            figures[f"{kind}_changed"] = float(changed.mean())
        if kind == "codes":
            usage = code_usage(stored, self._layer.codebook_size)
            figures["code_perplexity"] = float(np.mean(usage["perplexity"]))
            figures["unused_codewords"] = usage["num_unused"]
        return figures

    def _stored(self):
        """The codes or integers that a layer learns, or None."""
        layer = self._layer
        if isinstance(layer, CodeEmbedding) and layer.learn_codes is not None:
            return layer.codes
        if isinstance(layer, QuantizedEmbedding) and layer.learn_rows:
            return layer.numpy_integers()
        return None

    def _relative_error(self):
        error = energy = 0.0
        for start in range(0, len(self._ids), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            rows = self._rows[part].astype("float64")
            found = self._layer.embed(tf.constant(self._ids[part]))
            found = tf.cast(found, "float64").numpy()
            error += np.sum((rows - found) ** 2)
            energy += np.sum(rows**2)
        return float(error / energy) if energy else float("nan")
