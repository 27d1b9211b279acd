"""Look-up layers that sum by themselves, made of codes in a trace."""

import dataclasses
import math

import tensorflow as tf

from keras_compembed.export.marks import is_known
from keras_compembed.export.texts_of_ids import count_ids
from keras_compembed.export.vectors import Vectors


class ReducedRows:
    """Stands in for a `CodeEmbedReduce` or `ANTEmbedReduce`."""

    def __init__(self, trace, layer, products):
        self._trace, self._layer, self._products = trace, layer, products
        self._call, self._sum_rows = layer.call, layer.sum_rows

    def call(self, inputs, weights=None, mask=None, reverse=False, **kwargs):
        """In place of the layer's own."""
        layer, products = self._layer, self._products
        original = self._call
        is_plain = (
            not reverse
            and weights is None
            and isinstance(inputs, tf.Tensor)
            and inputs.shape.rank == 2
            and not is_known(inputs)
        )
        if not is_plain:
            return original(inputs, weights=weights, mask=mask, reverse=reverse)
        if mask is None:
            mask = getattr(inputs, "_keras_mask", None)
        layer._combiner.check_shapes(inputs, None, mask)
        ids = tf.cast(inputs, tf.int32)
        has_counts = layer.mask_zero or mask is not None
        is_mean = layer.combiner == "mean" and not has_counts
        has_other_value = (
            has_counts
            and layer.combiner != "sum"
            and layer.empty_value != 0
            and not math.isnan(layer.empty_value)
        )

        def counts(ids):
            exist = None if mask is None else tf.cast(mask, tf.bool)
            if not layer.mask_zero:
                return exist
            return ids != 0 if exist is None else (ids != 0) & exist

        def finish(sums, ids):
            if layer.combiner == "sum" or is_mean:
                return sums
            if has_counts:
                size = count_ids(counts(ids))
            else:
                size = tf.cast(tf.shape(ids)[1], tf.float32)
            is_empty = tf.equal(size, 0.0)
            if not math.isnan(layer.empty_value):
                size = tf.maximum(size, 1.0)
            if layer.combiner == "sqrtn":
                size = tf.sqrt(size)
            sums /= size
            if has_other_value:
                sums = tf.where(is_empty, layer.empty_value, sums)
            return sums

        pooled = Vectors(
            None,
            layer,
            inputs,
            ids,
            products,
            original,
            lambda x: products.sums(x, counts(x), mean=is_mean),
            finish,
            mask is None,
        )
        if products.may_sum(inputs.shape[1]):
            pooled.tensor = self._trace.multiply(pooled)
            self._note_reduced(layer, pooled)
        else:
            # As it was, unless a layer behind it is folded.
            pooled.tensor = original(inputs, mask=mask)
        if not has_other_value:
            self._trace.remember(pooled)
        return pooled.tensor

    def sum_rows(self, ids, weights):
        """In place of the layer's own."""
        layer, products = self._layer, self._products
        compose = self._sum_rows
        if (
            ids.shape[1] == 1
            or is_known(ids)
            or not products.may_sum(ids.shape[1])
        ):
            return compose(ids, weights)
        weights = tf.cast(weights, tf.float32)
        lost = None
        if math.isnan(layer.empty_value):
            # Not into products, which may be of 8-bit numbers.
            lost = tf.not_equal(weights, weights)
            weights = tf.where(lost, 0.0, weights)

        def finish(sums, ids):
            if lost is None:
                return sums
            is_lost = tf.reduce_any(lost, axis=1, keepdims=True)
            return sums + tf.where(is_lost, math.nan, 0.0)

        pooled = Vectors(
            None,
            layer,
            ids,
            tf.cast(ids, tf.int32),
            products,
            None,
            lambda x: products.sums(x, weights=weights),
            finish,
            False,
        )
        pooled.tensor = self._trace.multiply(pooled)
        self._note_reduced(layer, pooled)
        self._trace.remember(pooled)
        return pooled.tensor

    def _note_reduced(self, layer, pooled):
        key = self._trace.next_key(layer)
        source = dataclasses.replace(pooled, tensor=None, features=None)
        self._trace.add_site(key, layer, source, pooled.tensor)
