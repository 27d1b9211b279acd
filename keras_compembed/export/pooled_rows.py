"""Poolings of rows, made of codes while a model is traced."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_compembed.export.texts_of_ids import count_ids


class PooledRows:
    """Stands in for a pooling over time, where rows of a layer go in."""

    def __init__(self, trace, owner, mean, keepdims):
        self._trace = trace
        self._owner, self._original = owner, owner.call
        self._mean, self._keepdims = mean, keepdims

    def call(self, inputs, mask=None):
        """In place of the pooling's own."""
        owner, original = self._owner, self._original
        mean, keepdims = self._mean, self._keepdims

        def as_it_was(x, mask):
            return original(x) if mask is None else original(x, mask=mask)

        vectors, key = self._trace.find(inputs, owner)
        if (
            vectors is None
            or vectors.features is not None
            or vectors.ids.shape.rank != 2
            or (mask is not None and not _is_mask(mask))
        ):
            return as_it_was(inputs, mask)
        length = vectors.ids.shape[1]
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
                ids,
                counts(ids),
                mean=mean and not divides,
            ),
            finish=finish,
            is_held=is_of_ids,
        )
        if not vectors.products.may_sum(length):
            # As it was, unless a layer behind it is folded.
            pooled.tensor = as_it_was(inputs, mask)
            if not keepdims:
                self._trace.remember(pooled)
            return pooled.tensor
        pooled.tensor = self._trace.multiply(pooled)
        self._trace.add_site(key, owner, vectors, pooled.tensor)
        if keepdims:
            return tf.expand_dims(pooled.tensor, 1)
        self._trace.remember(pooled)
        return pooled.tensor


def _is_mask(mask):
    """Whether a mask leaves ids out; older Keras weighs by other numbers."""
    return mask.dtype == tf.bool and tf.TensorShape(mask.shape).rank == 2


def _is_mask_of(mask, vectors):
    """Whether a mask is what the look-up layer makes of its ids."""
    if not vectors.layer.mask_zero or not tf.is_symbolic_tensor(mask):
        return False
    if mask.op.type != "NotEqual":
        return False
    ids, zero = mask.op.inputs
    return (
        ids.name == vectors.inputs.name
        and ids.graph is vectors.inputs.graph
        and np.array_equal(tf.get_static_value(zero), 0)
    )
