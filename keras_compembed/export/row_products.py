"""Vectors of look-up layers as products of features and a matrix.

A vector of codes is its one-hot codes times the codewords, one of anchors its
row of T times the anchors. Whatever is linear may be done to the features
instead of the vectors, or to the matrix before anything runs.
"""

import numpy as np
import tensorflow as tf

from keras_compembed.export.one_hot_bytes import UNPACK_RUNTIME
from keras_compembed.export.one_hot_bytes import OneHotBytes
from keras_compembed.export.row_sums import RowSums
from keras_compembed.export.transform_lookup import TracedTransform

# Up to so many codewords a codebook for each row, rows are added up faster by
# counts of all codewords than one by one.
_COUNTED_SIZE = 8
# Up to so many codewords a codebook, one-hot vectors are not too wide.
_SPREAD_SIZE = 16
# Rows of a text of unknown length.
_USUAL_LENGTH = 32
# Part of what a look-up takes in a file that may be added to make it faster.
_SMALL_PART = 0.02


def make_products(layer, lookup, options):
    """Products for a look-up layer, or None if it is not linear.

    Args:
        layer: A built `CodeEmbedding` or `ANTEmbedding`.
        lookup: `TracedLookup` or `TracedTransform` of it.
        options: `ExportOptions`.
    """
    if isinstance(lookup, TracedTransform):
        return AnchorProducts(lookup)
    codebooks = tf.cast(layer.codebooks.value, tf.float32)
    codewords = layer.composition.fold(codebooks)
    if codewords is None:
        return None
    return CodeProducts(lookup, codewords.numpy(), options)


class CodeProducts:
    """Vectors of a `CodeEmbedding` whose composition is linear.

    Features are counts of codewords. Where bytes of codes hold whole subcodes,
    they are sums of one-hot vectors of bytes; others are counted one by one.

    Args:
        lookup: `TracedLookup` of the layer.
        codewords: float32 array `(num_codebooks, codebook_size, output_dim)`
            whose plain sum a vector is.
        options: `ExportOptions`.

    Attributes:
        columns: Integer, the width of features.
        width: Integer, the width of vectors.
        can_spread: Boolean, whether `spread` can be called.
        num_numbers: Integer, numbers that vectors are composed from as they
            are, apart from codes.
        composes_faster: Boolean, whether vectors are composed in less time and
            space than by a product.
    """

    def __init__(self, lookup, codewords, options):
        self._codes = codes = lookup.codes
        self._codewords = codewords
        self._options = options
        self.width = codewords.shape[-1]
        self.num_numbers = lookup.codewords.size
        self.composes_faster = lookup.codewords.shape != codewords.shape
        self._one_hot = None
        if codes.per_byte > 1 and self._fits(OneHotBytes.NBYTES):
            self._one_hot = OneHotBytes(codes.codebook_size, codes.per_byte)
            spare = codes.per_byte * codes.table.packed.shape[1]
            spare -= len(codewords)
            padding = np.zeros((spare, *codewords.shape[1:]), "float32")
            codewords = np.concatenate([codewords, padding])
        self._matrix = codewords.reshape(-1, self.width)
        self.columns = len(self._matrix)

    def _fits(self, num_bytes):
        """Whether so many bytes more in a file are worth less time."""
        oldest = self._options.min_runtime
        if oldest is not None and oldest < UNPACK_RUNTIME:
            return False
        if self._options.optimize_for == "latency":
            return True
        if self._options.optimize_for is not None:
            return False
        number = {None: 4, "float16": 2}.get(self._options.quantize, 1)
        own = self._codes.table.packed.size + number * self._codewords.size
        return num_bytes <= _SMALL_PART * own

    @property
    def can_spread(self):
        return self._codewords.shape[1] <= _SPREAD_SIZE

    @property
    def constants(self):
        """int8 tables that `unpack_once` must be given."""
        return [] if self._one_hot is None else [self._one_hot.table]

    @property
    def num_bytes(self):
        """Bytes of codes in a file."""
        return self._codes.table.packed.size

    def row_cost(self, width):
        """About the products that it takes to compose a row of a width."""
        num_codebooks, codebook_size, _ = self._codewords.shape
        if self.composes_faster and width == self.width:
            return width
        return num_codebooks * width * min(codebook_size, 16)

    def sum_cost(self, width):
        """Same, for the sum of a text."""
        if self.composes_faster and width == self.width:
            return _USUAL_LENGTH * width
        return self.columns * width

    def may_sum(self, length):
        """Whether to add up texts of so many ids, or None if that is open."""
        if self.composes_faster:
            return False
        if self._one_hot is not None:
            return True
        most = _COUNTED_SIZE * (length or _USUAL_LENGTH)
        return self._codewords.shape[1] <= most

    def fold(self, kernel=None):
        """The matrix `(columns, width)`, times another one."""
        return self._matrix if kernel is None else self._matrix @ kernel

    def rows(self, ids, kernel):
        """Vectors of a rank-1 tensor of ids, times a matrix."""
        codewords = self._codewords @ kernel
        return RowSums(codewords, self._options, self._codes).look_up(ids)

    def spread(self, ids):
        """Features `(texts, length, columns)` of each of some ids."""
        if self._one_hot is not None:
            vectors = self._one_hot(self._read_bytes(ids))
        else:
            subcodes = self._codes.read(tf.reshape(ids, [-1]))
            vectors = tf.one_hot(subcodes, self._codewords.shape[1])
        shape = tf.concat([tf.shape(ids), [self.columns]], axis=0)
        return _with_shape(vectors, shape, (*ids.shape, self.columns))

    def sums(self, ids, counts=None, weights=None, mean=False):
        """Features `(texts, columns)` of sums of vectors.

        Args:
            ids: int32 tensor `(texts, length)`.
            counts: Optional boolean tensor like `ids`, the ids that count.
            weights: Optional float tensor like `ids`.
            mean: Boolean. Whether to divide by the length.
        """
        if self._one_hot is None:
            return self._count(ids, counts, weights, mean)
        stored = self._read_bytes(ids)
        if counts is not None:
            counts = tf.expand_dims(counts, 2)
            stored = tf.where(counts, stored, self._one_hot.zeros)
        vectors = self._one_hot(stored)
        if weights is not None:
            vectors *= tf.expand_dims(tf.expand_dims(weights, 2), 3)
        reduce = tf.reduce_mean if mean else tf.reduce_sum
        return tf.reshape(reduce(vectors, axis=1), [-1, self.columns])

    def _read_bytes(self, ids):
        # Ids of any rank, which need no new shape then.
        return self._codes.read(ids, self._codes.per_byte)

    def _count(self, ids, counts, weights, mean):
        subcodes = self._codes.read(tf.reshape(ids, [-1]))
        num_codebooks, codebook_size, _ = self._codewords.shape
        places = subcodes + np.arange(num_codebooks) * codebook_size
        groups, size = _groups(ids)
        places += tf.expand_dims(groups * self.columns, 1)
        weights = _weights(ids, counts, weights)
        if weights is None:
            values = tf.fill(tf.shape(places), 1.0)
        else:
            values = tf.expand_dims(tf.reshape(weights, [-1]), 1)
            values = tf.broadcast_to(values, tf.shape(places))
        sums = tf.math.unsorted_segment_sum(
            tf.reshape(values, [-1]),
            tf.reshape(places, [-1]),
            size * self.columns,
        )
        sums = tf.reshape(sums, [-1, self.columns])
        return sums / _length(ids) if mean else sums


class AnchorProducts:
    """Vectors of an `ANTEmbedding`. Features are rows of T, and their sums.

    Args:
        lookup: `TracedTransform` of the layer.

    Attributes:
        columns: Integer, the width of features.
        width: Integer, the width of vectors.
        can_spread: Boolean, whether `spread` can be called.
        num_numbers: Integer, numbers of anchors.
    """

    can_spread = True
    constants = ()

    def __init__(self, lookup):
        self._lookup = lookup
        self._matrix = lookup.anchors
        if lookup.bias is not None:
            # One for each vector that is added up.
            bias = lookup.bias[None].astype("float32")
            self._matrix = np.concatenate([self._matrix, bias])
        self.columns, self.width = self._matrix.shape
        self.num_numbers = self._matrix.size

    def row_cost(self, width):
        return self.columns * width

    def sum_cost(self, width):
        return self.columns * width

    @property
    def num_bytes(self):
        """Bytes of the transform in a file, about."""
        return self._lookup.values.nbytes + self._lookup.columns.nbytes

    def may_sum(self, length):
        return True

    def fold(self, kernel=None):
        return self._matrix if kernel is None else self._matrix @ kernel

    def rows(self, ids, kernel):
        return self._lookup.folded(kernel)(ids)

    def spread(self, ids):
        flat = tf.reshape(ids, [-1])
        size = tf.size(ids) if flat.shape[0] is None else flat.shape[0]
        # One group for each id.
        groups = tf.range(size)
        features = self._lookup.weigh(flat, groups, None, size)
        if self._lookup.bias is not None:
            features = tf.pad(features, [[0, 0], [0, 1]], constant_values=1.0)
        shape = tf.concat([tf.shape(ids), [self.columns]], axis=0)
        return _with_shape(features, shape, (*ids.shape, self.columns))

    def sums(self, ids, counts=None, weights=None, mean=False):
        groups, size = _groups(ids)
        weights = _weights(ids, counts, weights)
        flat = None if weights is None else tf.reshape(weights, [-1])
        sums = self._lookup.weigh(tf.reshape(ids, [-1]), groups, flat, size)
        if self._lookup.bias is not None:
            if weights is None:
                total = tf.ones_like(sums[:, :1]) * _length(ids)
            else:
                total = tf.reduce_sum(weights, axis=1, keepdims=True)
            sums = tf.concat([sums, total], axis=1)
        return sums / _length(ids) if mean else sums


def _with_shape(tensor, shape, static):
    tensor = tf.reshape(tensor, shape)
    tensor.set_shape(static)
    return tensor


def _weights(ids, counts, weights):
    if counts is None:
        return weights
    counts = tf.cast(counts, tf.float32)
    return counts if weights is None else counts * weights


def _groups(ids):
    """The text of each id in a row, and the number of texts."""
    size = ids.shape[0]
    if size == 1:
        return tf.zeros_like(tf.reshape(ids, [-1])), 1
    if size is None:
        size = tf.shape(ids)[0]
    groups = tf.broadcast_to(tf.expand_dims(tf.range(size), 1), tf.shape(ids))
    return tf.reshape(groups, [-1]), size


def _length(ids):
    return tf.cast(
        tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1], tf.float32
    )
