"""Sums and averages of rows, made of codes while a model is traced."""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from keras_compembed.export.linear_trace import Vectors
from keras_compembed.export.marks import is_known
from keras_compembed.litert.texts_of_ids import count_ids


def pooled_rows(trace, owner, mean, keepdims):
    """A `call` for a pooling over time where rows of a layer go in."""
    original = owner.call

    def as_it_was(x, mask):
        return original(x) if mask is None else original(x, mask=mask)

    def call(inputs, mask=None):
        vectors, key = trace.find(inputs, owner)
        if (
            vectors is None
            or vectors.features is not None
            or vectors.ids.shape.rank != 2
            or (mask is not None and not _is_mask(mask))
        ):
            return as_it_was(inputs, mask)
        divides = mean and mask is not None
        is_of_ids = mask is None or _is_mask_of(mask, vectors)
        size = None if is_of_ids else count_ids(mask)

        def reference(ids):
            known = None if mask is None else tf.not_equal(ids, 0)
            pooled = as_it_was(vectors.reference(ids), known)
            return pooled[:, 0] if keepdims else pooled

        def counts(ids):
            if mask is None:
                return None
            # Of the same ids, which then are all that goes in. Others may be
            # for all texts, or all ids of one, as Keras has it.
            return ids != 0 if is_of_ids else mask & (ids >= 0)

        def finish(sums, ids):
            if not divides:
                return sums
            return sums / (count_ids(ids != 0) if is_of_ids else size)

        pooled = dataclasses.replace(
            vectors,
            reference=reference,
            features=lambda ids: vectors.products.sums(
                ids, counts(ids), mean=mean and not divides
            ),
            finish=finish,
            is_held=is_of_ids,
        )
        if vectors.products.may_sum(vectors.length):
            pooled.tensor = trace.multiply(pooled)
            trace.add_site(key, owner, vectors, pooled.tensor)
        else:
            # As it was, unless a layer behind it is folded.
            pooled.tensor = as_it_was(inputs, mask)
            if keepdims:
                return pooled.tensor
        if keepdims:
            return tf.expand_dims(pooled.tensor, 1)
        trace.remember(pooled)
        return pooled.tensor

    return call


def _is_mask(mask):
    """Whether a mask leaves ids out; older Keras weighs by other numbers."""
    return mask.dtype == tf.bool and tf.TensorShape(mask.shape).rank == 2


def _is_mask_of(mask, vectors):
    """Whether a mask is what the look-up layer makes of its ids."""
    is_symbolic = vectors.layer.mask_zero and tf.is_symbolic_tensor(mask)
    if not is_symbolic or mask.op.type != "NotEqual":
        return False
    ids, zero = mask.op.inputs
    return (
        ids.name == vectors.inputs.name
        and ids.graph is vectors.inputs.graph
        and np.array_equal(tf.get_static_value(zero), 0)
    )


def reduced_rows(trace, layer, products):
    """`call` and `sum_rows` for a layer that sums the vectors of ids itself."""
    original, original_sums = layer.call, layer.sum_rows
    combiner = layer.combiner
    is_nan = math.isnan(combiner.empty_value)

    def pool(ids, *parts):
        ids32 = tf.cast(ids, tf.int32)
        return Vectors(None, layer, ids, ids32, products, *parts)

    def multiply(pooled):
        pooled.tensor = trace.multiply(pooled)
        source = dataclasses.replace(pooled, tensor=None, features=None)
        trace.add_site(trace.next_key(layer), layer, source, pooled.tensor)

    def call(inputs, weights=None, mask=None, reverse=False, **kwargs):
        if (
            reverse
            or weights is not None
            or not isinstance(inputs, tf.Tensor)
            or inputs.shape.rank != 2
            or is_known(inputs)
        ):
            return original(inputs, weights=weights, mask=mask, reverse=reverse)
        if mask is None:
            mask = getattr(inputs, "_keras_mask", None)
        combiner.check_shapes(inputs, None, mask)
        has_counts = layer.mask_zero or mask is not None
        is_mean = combiner.name == "mean" and not has_counts
        has_other_value = (
            has_counts
            and combiner.name != "sum"
            and combiner.empty_value != 0
            and not is_nan
        )

        def counts(ids):
            exist = None if mask is None else tf.cast(mask, tf.bool)
            if not layer.mask_zero:
                return exist
            return ids != 0 if exist is None else (ids != 0) & exist

        def finish(sums, ids):
            if combiner.name == "sum" or is_mean:
                return sums
            if has_counts:
                size = count_ids(counts(ids))
            else:
                size = tf.cast(tf.shape(ids)[1], tf.float32)
            is_empty = tf.equal(size, 0.0)
            if not is_nan:
                size = tf.maximum(size, 1.0)
            if combiner.name == "sqrtn":
                size = tf.sqrt(size)
            sums /= size
            if has_other_value:
                sums = tf.where(is_empty, combiner.empty_value, sums)
            return sums

        def features(ids):
            return products.sums(ids, counts(ids), mean=is_mean)

        pooled = pool(inputs, original, features, finish, mask is None)
        if products.may_sum(inputs.shape[1]):
            multiply(pooled)
        else:
            # As it was, unless a layer behind it is folded.
            pooled.tensor = original(inputs, mask=mask)
        if not has_other_value:
            trace.remember(pooled)
        return pooled.tensor

    def sum_rows(ids, weights):
        length = ids.shape[1]
        if length == 1 or is_known(ids) or not products.may_sum(length):
            return original_sums(ids, weights)
        weights = tf.cast(weights, tf.float32)
        lost = None
        if is_nan:
            # Not into products, which may be of 8-bit numbers.
            lost = tf.not_equal(weights, weights)
            weights = tf.where(lost, 0.0, weights)

        def finish(sums, ids):
            if lost is None:
                return sums
            is_lost = tf.reduce_any(lost, axis=1, keepdims=True)
            return sums + tf.where(is_lost, math.nan, 0.0)

        def features(ids):
            return products.sums(ids, weights=weights)

        pooled = pool(ids, None, features, finish, False)
        multiply(pooled)
        trace.remember(pooled)
        return pooled.tensor

    return call, sum_rows
