"""How a `CodeEmbedding` is written down for LiteRT."""

import numpy as np
import tensorflow as tf

from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.export.export_options import DEFAULTS
from keras_compembed.export.row_sums import RowSums
from keras_compembed.export.scored_codes import ScoredCodes
from keras_compembed.export.scored_codes import chunks_of_ids
from keras_compembed.export.scored_codes import top_of_chunks
from keras_compembed.export.stored_codes import StoredCodes

# Numbers in the largest tensor that is held while all rows are composed.
_CHUNK_ELEMENTS = 1 << 22
# Rows of a chunk for which a graph is chosen, about.
_CHUNK_IDS = 4096


class TracedLookup:
    """Stands in for `CodeEmbedding.embed` while a model is converted."""

    def __init__(self, layer, options=DEFAULTS):
        composition = layer.composition
        codebooks = tf.cast(layer.codebooks.value, tf.float32)
        folded = composition.fold(codebooks)
        if isinstance(composition, LinearComposition):
            # The matrix stays where codebooks would grow by more than it.
            saved = composition.kernel.shape.num_elements()
            saved += codebooks.shape.num_elements()
            if folded.shape.num_elements() > saved:
                folded = None
        # Parts of vectors, in units or not, would be padded to be summed.
        is_sum = folded is not None and not isinstance(
            composition.unscaled(), ConcatComposition
        )
        self._composition = composition
        self._options = options
        if is_sum:
            codewords = folded.numpy()
        else:
            codewords = composition.codewords(codebooks).numpy()
        self.codes = StoredCodes(layer)
        self.codewords = codewords
        self._is_called = False
        self.scores = None
        if composition.is_linear:
            self.scores = ScoredCodes(layer, self.codes, codebooks, options)
        self._num_rows = layer.input_dim
        if is_sum:
            self._sums = RowSums(codewords, options, self.codes)
            row_elements = self._sums.count_elements(_CHUNK_IDS)
        else:
            self._sums = None
            row_elements = 4 * codewords.shape[0] * codewords.shape[2]
        chunk = max(1, _CHUNK_ELEMENTS // row_elements)
        self._chunk = min(self._num_rows, chunk)

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        self._is_called = True
        ids = tf.cast(ids, tf.int32)
        if self._sums is not None:
            return self._sums.look_up(ids)
        num_codebooks, codebook_size, width = self.codewords.shape
        flat = self._options.note(self.codewords.reshape(-1, width))
        first = np.arange(num_codebooks, dtype="int32") * codebook_size
        places = self.codes.read(ids) + first
        return self._composition(tf.gather(flat, places))

    def embed_all(self, embed=None):
        """Vectors `(input_dim, output_dim)` of all ids."""
        chunks = self._chunks(_input_of_graph(), embed or self)
        return tf.concat(list(chunks), axis=0)

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        return tf.concat(list(self._score_chunks(vectors)), axis=-1)

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""
        return top_of_chunks(self._score_chunks(vectors), k)

    def _score_chunks(self, vectors):
        """Yields logits of vectors, for a chunk of ids at a time."""
        vectors = tf.cast(vectors, tf.float32)
        # Same as in `CodeEmbedding.score`; most files run for few vectors.
        is_few = (vectors.shape[0] or 1) <= vectors.shape[1]
        if self.scores is not None and is_few:
            yield from self.scores.chunks(vectors, self._is_called)
            return
        for chunk in self._chunks(vectors, self):
            yield tf.matmul(vectors, chunk, transpose_b=True)

    def _chunks(self, inputs, embed):
        """Yields the vectors of all ids, chunk by chunk."""
        for ids in chunks_of_ids(inputs, self._num_rows, self._chunk):
            yield embed(ids)


def _input_of_graph():
    """The first input of the function that is traced."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "inputs"):
        graph = graph.outer_graph
    return graph.inputs[0]
