"""How a `CodeEmbedding` is written down for LiteRT."""

import numpy as np
import tensorflow as tf

from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.export.export_options import DEFAULTS
from keras_compembed.export.stored_codes import StoredCodes

# Up to here a one-hot product is faster than gathered codewords, and takes
# less memory; more so where the runtime multiplies in int8.
_ONE_HOT_CODEBOOK_SIZES = {None: 16, "float16": 16, "int8": 32}
# Numbers in the largest tensor that is held while all rows are composed.
_CHUNK_ELEMENTS = 1 << 22
# Codewords gathered at once, beyond that size: a small multiple of the output,
# however many codebooks there are.
_GROUP = 8


class TracedLookup:
    """Stands in for `CodeEmbedding.embed` while a model is converted.

    `embed_all` and `score` take the places of the methods of these names.
    Rows are composed when the file runs, in chunks of a known shape.

    Args:
        layer: A built `CodeEmbedding`.
        options: `ExportOptions`.

    Attributes:
        codes: `StoredCodes`.
        codewords: float32 array `(num_codebooks, codebook_size, width)`, one
            for each subcode read.
    """

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
        self._sums = folded is not None and not isinstance(
            composition, ConcatComposition
        )
        self._composition = composition
        if self._sums:
            codewords = folded.numpy()
        else:
            codewords = composition.codewords(codebooks).numpy()
        self.codes = StoredCodes(
            layer, options.min_runtime, may_pair=self._sums
        )
        self.codewords = codewords = self.codes.codebooks(codewords)
        self._one_hot = (
            self._sums
            and codewords.shape[1] <= _ONE_HOT_CODEBOOK_SIZES[options.quantize]
        )
        self._num_rows = layer.input_dim
        # One-hot vectors, or codewords gathered: more than a row has numbers.
        width = num_codebooks = codewords.shape[0]
        width *= codewords.shape[1] if self._one_hot else codewords.shape[2]
        if not self._sums:
            width *= 4
        elif not self._one_hot:
            width = min(num_codebooks, _GROUP) * codewords.shape[2]
        self._chunk = min(self._num_rows, max(1, _CHUNK_ELEMENTS // width))

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        subcodes = self.codes.read(tf.cast(ids, tf.int32))
        num_codebooks, codebook_size, width = self.codewords.shape
        flat = tf.constant(self.codewords.reshape(-1, width))
        if self._one_hot:
            one_hot = tf.one_hot(subcodes, codebook_size)
            return tf.matmul(tf.reshape(one_hot, (-1, flat.shape[0])), flat)
        places = subcodes + np.arange(num_codebooks) * codebook_size
        if not self._sums:
            return self._composition(tf.gather(flat, places))
        total = None
        for start in range(0, num_codebooks, _GROUP):
            part = tf.gather(flat, places[:, start : start + _GROUP])
            part = tf.reduce_sum(part, axis=1)
            total = part if total is None else total + part
        return total

    def embed_all(self, embed=None):
        """Vectors `(input_dim, output_dim)` of all ids.

        Args:
            embed: Optional function in place of a call.
        """
        chunks = self._chunks(_input_of_graph(), embed or self)
        return tf.concat(list(chunks), axis=0)

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        vectors = tf.cast(vectors, tf.float32)
        logits = [
            tf.matmul(vectors, chunk, transpose_b=True)
            for chunk in self._chunks(vectors, self)
        ]
        return tf.concat(logits, axis=-1)

    def _chunks(self, inputs, embed):
        """Yields the vectors of all ids, chunk by chunk.

        Args:
            inputs: A tensor that the converter does not know. It writes down
                what it can compute: all vectors, if it knows the ids.
            embed: Function from ids to vectors.
        """
        # Zero, whatever the inputs are.
        some = tf.reduce_max(tf.cast(inputs, tf.float32)) >= 0
        zero = tf.minimum(tf.cast(some, tf.int32), 0)
        # Of a shape that the runtime knows before it runs.
        offsets = tf.reshape(tf.range(zero, self._chunk + zero), [self._chunk])
        for start in range(0, self._num_rows, self._chunk):
            size = min(self._chunk, self._num_rows - start)
            yield embed(offsets[:size] + start)


def _input_of_graph():
    """The first input of the function that is traced."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "inputs"):
        graph = graph.outer_graph
    return graph.inputs[0]
