"""How a `CodeEmbedding` is written down for LiteRT."""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.export.flatbuffer import StoredTable
from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.export.row_chunks import ScoredInChunks
from keras_compembed.export.row_sums import RowSums
from keras_compembed.export.scored_codes import ScoredCodes

# Numbers in the largest tensor that is held while all rows are composed.
_CHUNK_ELEMENTS = 1 << 22
# Rows of a chunk for which a graph is chosen, about.
_CHUNK_IDS = 4096


class StoredCodes:
    """The codes of a layer in a file, and how they are read."""

    def __init__(self, layer):
        self.num_codebooks = layer.num_codebooks
        self.codebook_size = layer.codebook_size
        bits = bits_per_subcode(self.codebook_size)
        self.is_aligned = bits in (1, 2, 4, 8)
        self.per_byte = 8 // bits if self.is_aligned else 1
        packed = pack_codes(layer.codes, self.codebook_size)
        self.table = StoredTable(f"{layer.path}/codes", packed, packed)

    def read(self, ids, together=1):
        """Subcodes, int32 `(ids, num_codebooks)`, of a rank-1 tensor of ids."""
        rows = tf.gather(self.table.packed, ids)
        if together > 1:
            return tf.cast(rows, tf.int32)
        return unpack_rows(rows, self.num_codebooks, self.codebook_size)


class TracedLookup(ScoredInChunks):
    """Stands in for `CodeEmbedding.embed` while a model is converted."""

    def __init__(self, layer, options):
        self._composition = composition = layer.composition
        self._options = options
        codebooks = tf.cast(layer.codebooks.value, tf.float32)
        folded = composition.fold(codebooks)
        # Codewords whose sum is a vector, or None.
        self.summed = None if folded is None else folded.numpy()
        # Parts of vectors, in units or not, would be padded to be summed.
        is_sum = folded is not None and not isinstance(
            composition.unscaled(), ConcatComposition
        )
        if isinstance(composition, LinearComposition):
            # The matrix stays where codebooks would grow by more than it.
            saved = composition.kernel.shape.num_elements()
            saved += codebooks.shape.num_elements()
            is_sum = folded.shape.num_elements() <= saved
        self.codes = StoredCodes(layer)
        self.scores = self._sums = None
        if composition.is_linear:
            self.scores = ScoredCodes(layer, self.codes, codebooks, options)
        self._is_called = False
        if is_sum:
            self.codewords = self.summed
            self._sums = RowSums(self.codewords, options, self.codes)
            row_elements = self._sums.count_elements(_CHUNK_IDS)
        else:
            self.codewords = composition.codewords(codebooks).numpy()
            num_codebooks, _, width = self.codewords.shape
            row_elements = 4 * num_codebooks * width
        self.chunks = RowChunks(layer.input_dim, row_elements, _CHUNK_ELEMENTS)

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

    def score_chunks(self, vectors):
        """Yields logits of vectors, for a chunk of ids at a time."""
        vectors = tf.cast(vectors, tf.float32)
        # Same as in `CodeEmbedding.score`; most files run for few vectors.
        is_few = (vectors.shape[0] or 1) <= vectors.shape[1]
        if self.scores is not None and is_few:
            yield from self.scores.chunks(vectors, self._is_called)
            return
        for ids in self.chunks.ids(vectors):
            yield tf.matmul(vectors, self(ids), transpose_b=True)
