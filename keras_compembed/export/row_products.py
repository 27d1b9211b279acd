"""Vectors of look-up layers as products of features and a matrix.

A vector of codes is its one-hot codes times the codewords, one of anchors its
row of T times the anchors, one of a factored table its row times the
projection. Whatever is linear may be done to the features
instead of the vectors, or to the matrix before anything runs.
"""

import tensorflow as tf

from keras_compembed.export.anchor_products import AnchorProducts
from keras_compembed.export.code_products import CodeProducts
from keras_compembed.export.table_lookup import TracedTable
from keras_compembed.export.table_products import TableProducts
from keras_compembed.export.transform_lookup import TracedTransform


def make_products(layer, lookup, options):
    """Products for a look-up layer, or None if it is not linear.

    Args:
        layer: A built `CodeEmbedding`, `ANTEmbedding` or
            `QuantizedEmbedding`.
        lookup: `TracedLookup`, `TracedTransform` or `TracedTable` of it.
        options: `ExportOptions`.
    """
    if isinstance(lookup, TracedTransform):
        return AnchorProducts(lookup)
    if isinstance(lookup, TracedTable):
        return TableProducts(lookup)
    codebooks = tf.cast(layer.codebooks.value, tf.float32)
    codewords = layer.composition.fold(codebooks)
    if codewords is None:
        return None
    return CodeProducts(lookup, codewords.numpy(), options)
