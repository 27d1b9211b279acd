"""All rows of a look-up layer in a LiteRT file, for some ids at a time."""

import tensorflow as tf

# Numbers in the largest tensor that is held while all rows are composed.
_CHUNK_ELEMENTS = 1 << 20


class RowChunks:
    """Composes all rows when the file runs, in chunks of a known shape."""

    def __init__(self, num_rows, row_elements, most=_CHUNK_ELEMENTS):
        self._num_rows = num_rows
        self._size = min(num_rows, max(1, most // row_elements))

    def ids(self, inputs):
        """Yields rank-1 tensors of all ids that the converter does not know."""
        size, zero = self._size, unknown_zero(inputs)
        # Of a shape that the runtime knows before it runs.
        offsets = tf.reshape(tf.range(zero, size + zero), [size])
        for start in range(0, self._num_rows, size):
            yield offsets[: min(size, self._num_rows - start)] + start

    def table(self, embed):
        """Vectors `(rows, output_dim)` of all ids."""
        graph = tf.compat.v1.get_default_graph()
        while hasattr(getattr(graph, "outer_graph", None), "inputs"):
            graph = graph.outer_graph
        return tf.concat([embed(x) for x in self.ids(graph.inputs[0])], axis=0)


def top_of_chunks(chunks, k):
    """Scores and ids `(vectors, k)` of scores of all ids, chunk by chunk."""
    scores, ids, start = [], [], 0
    for chunk in chunks:
        size = chunk.shape[1]
        best, places = tf.math.top_k(chunk, min(k, size))
        scores.append(best)
        ids.append(places + start)
        start += size
    if len(scores) == 1:
        return scores[0], ids[0]
    scores, places = tf.math.top_k(tf.concat(scores, 1), k)
    return scores, tf.gather(tf.concat(ids, 1), places, batch_dims=1)


def unknown_zero(inputs):
    """Zero, whatever the inputs are, but not to the converter."""
    some = tf.reduce_max(tf.cast(inputs, tf.float32)) >= 0
    return tf.minimum(tf.cast(some, tf.int32), 0)
