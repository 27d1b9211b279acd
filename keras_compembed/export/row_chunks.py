"""All rows of a look-up layer in a LiteRT file, for some ids at a time."""

import tensorflow as tf

from keras_compembed.export.scored_codes import chunks_of_ids
from keras_compembed.export.scored_codes import top_of_chunks

# Numbers in the largest tensor that is held while all rows are composed.
_CHUNK_ELEMENTS = 1 << 20


class RowChunks:
    """Composes all rows when the file runs, in chunks of a known shape."""

    def __init__(self, num_rows, row_elements):
        self._num_rows = num_rows
        size = max(1, _CHUNK_ELEMENTS // row_elements)
        self._size = min(num_rows, size)

    def table(self, embed):
        """Vectors `(rows, output_dim)` of all ids."""
        chunks = [embed(ids) for ids in self._ids(_input_of_graph())]
        return tf.concat(chunks, axis=0)

    def score(self, vectors, score):
        """Scores `(vectors, rows)` of all ids."""
        chunks = [score(ids) for ids in self._ids(vectors)]
        return tf.concat(chunks, axis=-1)

    def top_ids(self, vectors, score, k):
        """The `k` highest of them and their ids, `(vectors, k)` each."""
        return top_of_chunks(map(score, self._ids(vectors)), k)

    def _ids(self, inputs):
        return chunks_of_ids(inputs, self._num_rows, self._size)


def _input_of_graph():
    """The first input of the function that is traced."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "inputs"):
        graph = graph.outer_graph
    return graph.inputs[0]
