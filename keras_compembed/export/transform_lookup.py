"""How an `ANTEmbedding` is written down for LiteRT."""

import copy

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.compressed_rows import CompressedRows
from keras_compembed.export.compressed_rows import dense_rows
from keras_compembed.export.compressed_rows import ones_like_ids
from keras_compembed.export.compressed_rows import round_values
from keras_compembed.export.packed_offsets import PackedOffsets
from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.export.row_chunks import top_of_chunks
from keras_compembed.layers.lookup_layer import unflatten

# Rows made dense and multiplied by the anchors are faster than sums of gathered
# anchors up to so many anchors, and up to so many for each number read.
_DENSE_ANCHORS = 128
_DENSE_ANCHORS_PER_NUMBER = 48
_DENSE_ANCHORS_PER_SLOT = 16
# Longest row up to which windows are no slower than reading what is there.
_WINDOW = 16


class TracedTransform:
    """Stands in for an `ANTEmbedding` while a model is converted."""

    def __init__(self, layer, options):
        transform = layer.get_transform()
        anchors = keras.ops.convert_to_numpy(layer.anchors).astype("float64")
        values = transform.values.astype("float64")
        self.bias = None
        if layer.activation == "softmax":
            values, anchors, bias = softmax_as_linear(
                transform, anchors, layer.segments
            )
            self.bias = bias.astype("float32")
        # Anchors that no row names are left out.
        used = np.unique(transform.columns)
        columns = np.searchsorted(used, transform.columns)
        anchors = anchors[used]
        if not len(used):
            anchors = np.zeros((1, layer.output_dim))
        columns = np.append(columns, 0)
        values, scales, step = round_values(
            np.append(values, 0), columns, len(anchors), options.quantize
        )
        self.rows = CompressedRows(
            PackedOffsets(transform.offsets),
            transform.row_lengths,
            columns,
            values,
            len(anchors),
            step,
        )
        if scales is not None:
            anchors = anchors * scales[:, None]
        self.anchors = options.note(anchors.astype("float32"))
        longest = self.rows.longest
        self._has_windows = (
            longest <= _WINDOW
            or len(anchors) > _DENSE_ANCHORS_PER_NUMBER * longest
        )
        self._num_rows = transform.num_rows
        self.chunks = RowChunks(
            layer.input_dim, max(layer.output_dim, layer.num_anchors)
        )

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        ids = tf.cast(ids, tf.int32)
        if ids.shape[0] is not None and self._has_windows:
            vectors = self._window(ids)
        else:
            vectors = self._ragged(ids)
        return vectors if self.bias is None else vectors + self.bias

    def folded(self, kernel):
        """The same look-up with each vector times a matrix."""
        lookup = copy.copy(self)
        lookup.anchors = self.anchors @ kernel
        if self.bias is not None:
            lookup.bias = self.bias @ kernel
        return lookup

    def weigh(self, ids, groups, weights, num_groups):
        """Sums of weighted rows of the transform."""
        ids = tf.cast(ids, tf.int32)
        if ids.shape[0] is not None and self._has_windows:
            columns, values = self.rows.windows(ids)
        else:
            rows, columns, values = self.rows.numbers(ids)
            groups = tf.gather(groups, rows)
            weights = None if weights is None else tf.gather(weights, rows)
        if weights is not None:
            values *= weights
        num_anchors = len(self.anchors)
        sums = tf.math.unsorted_segment_sum(
            tf.reshape(values, [-1]),
            tf.reshape(columns + groups * num_anchors, [-1]),
            num_groups * num_anchors,
        )
        return tf.reshape(sums, [-1, num_anchors])

    def score(self, vectors):
        """Products `(..., input_dim)` of vectors `(..., output_dim)`."""
        output_dim = self.anchors.shape[1]
        flat = tf.reshape(vectors, (-1, output_dim))
        # Zero, but not to the converter, which would write down the rows.
        zero = tf.minimum(tf.cast(flat[0, 0] >= 0, tf.int32), 0)
        ids = tf.range(zero, self._num_rows + zero)
        rows, columns, values = self.rows.numbers(ids)
        scores = tf.matmul(flat, self.anchors, transpose_b=True)
        if flat.shape[0] is None:
            parts = tf.gather(tf.transpose(scores), columns)
            products = tf.math.unsorted_segment_sum(
                parts * tf.expand_dims(values, 1), rows, self._num_rows
            )
            logits = tf.transpose(products)
        else:
            dense = dense_rows(
                rows, columns, values, [self._num_rows], len(self.anchors)
            )
            logits = tf.matmul(scores, dense, transpose_b=True)
        if self.bias is not None:
            logits += tf.matmul(flat, self.bias[:, None])
        return unflatten(logits, vectors, vectors.shape[:-1], self._num_rows)

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""
        return top_of_chunks([self.score(vectors)], k)

    def _ragged(self, ids):
        rows, columns, values = self.rows.numbers(ids)
        # Sums of gathered anchors have an open shape: `CompiledModel` misreads
        # them.
        if ids.shape[0] is not None or self._prefers_product(
            _DENSE_ANCHORS_PER_NUMBER * self.rows.mean_length
        ):
            return self._product(rows, columns, values, tf.shape(ids))
        return tf.math.unsorted_segment_sum(
            tf.gather(self.anchors, columns) * tf.expand_dims(values, 1),
            rows,
            tf.size(ids),
        )

    def _window(self, ids):
        columns, values = self.rows.windows(ids)
        if self._prefers_product(_DENSE_ANCHORS_PER_SLOT * self.rows.longest):
            rows = tf.expand_dims(
                tf.cumsum(ones_like_ids(ids), exclusive=True), 0
            )
            return self._product(rows, columns, values, tf.shape(ids))
        vectors = tf.gather(self.anchors, columns)
        return tf.reduce_sum(vectors * tf.expand_dims(values, 2), axis=0)

    def _prefers_product(self, most_anchors):
        return len(self.anchors) <= max(_DENSE_ANCHORS, most_anchors)

    def _product(self, rows, columns, values, num_rows):
        dense = dense_rows(rows, columns, values, num_rows, len(self.anchors))
        return tf.matmul(dense, self.anchors)


def softmax_as_linear(transform, anchors, segments):
    """Weights and anchors whose plain product is a sum of softmaxes."""
    firsts = np.cumsum([0, *segments[:-1]])
    sizes = np.asarray(segments)
    means = np.add.reduceat(anchors, firsts) / sizes[:, None]
    bias = means.sum(axis=0)
    segment_of = np.repeat(np.arange(len(sizes)), sizes)
    anchors = anchors - means[segment_of]
    numbers = transform.values.astype("float64")
    if not len(numbers):
        return numbers, anchors, bias
    rows = np.repeat(np.arange(transform.num_rows), transform.row_lengths)
    keys = rows * len(sizes) + segment_of[transform.columns]
    # A group is the part of a row in a segment: neighbours, as columns rise.
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(starts, append=len(keys))
    zeros = sizes[keys[starts] % len(sizes)] - counts
    top = np.maximum.reduceat(numbers, starts)
    top = np.where(zeros > 0, np.maximum(top, 0), top)
    of_zero = np.where(zeros > 0, np.exp(-np.maximum(top, 0)), 0)
    exps = np.exp(numbers - np.repeat(top, counts))
    sums = np.add.reduceat(exps, starts) + zeros * of_zero
    exps -= np.repeat(of_zero, counts)
    return exps / np.repeat(sums, counts), anchors, bias
