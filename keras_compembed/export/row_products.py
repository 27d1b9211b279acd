"""Vectors of look-up layers as products of features and a matrix."""

import tensorflow as tf

from keras_compembed.export.anchor_products import AnchorProducts
from keras_compembed.export.code_products import CodeProducts
from keras_compembed.export.table_lookup import TracedTable
from keras_compembed.export.table_products import TableProducts
from keras_compembed.export.transform_lookup import TracedTransform


def make_products(layer, lookup, options):
    """Products for a look-up layer, or None if it is not linear."""
    if isinstance(lookup, TracedTransform):
        return AnchorProducts(lookup)
    if isinstance(lookup, TracedTable):
        return TableProducts(lookup)
    codebooks = tf.cast(layer.codebooks.value, tf.float32)
    codewords = layer.composition.fold(codebooks)
    if codewords is None:
        return None
    return CodeProducts(lookup, codewords.numpy(), options)
