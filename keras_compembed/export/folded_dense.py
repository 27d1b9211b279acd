"""`Dense` layers folded into codebooks while a model is traced."""

import dataclasses

import tensorflow as tf

from keras_compembed.export.kernels import finish
from keras_compembed.export.kernels import read_kernel
from keras_compembed.export.marks import Texts


class FoldedDense:
    """Stands in for a `Dense`, where rows go in, or sums of them."""

    def __init__(self, trace, rule, layer):
        self._trace, self._rule = trace, rule
        self._layer, self._original = layer, layer.call

    def call(self, inputs, *args, **kwargs):
        """In place of the layer's own."""
        layer, original = self._layer, self._original
        vectors, key = self._trace.find(inputs, layer)
        if vectors is None or not self._rule.pays(vectors, layer.units):
            return original(inputs, *args, **kwargs)
        kernel = read_kernel(layer)

        def reference(ids):
            return tf.linalg.matmul(vectors.reference(ids), kernel)

        if vectors.features is not None:
            outputs = self._trace.multiply(
                vectors, self._trace.fold(vectors.products, layer), reference
            )
        else:
            flat = dataclasses.replace(
                vectors, ids=tf.reshape(vectors.ids, [-1])
            )
            outputs = self._trace.mark(
                flat,
                Texts(reference, window=0),
                lambda ids: vectors.products.rows(ids, kernel),
            )
            outputs = _unflatten(outputs, vectors.ids, layer.units)
        self._trace.add_site(key, layer, vectors, outputs, layer.units)
        return finish(layer, outputs)


def _unflatten(rows, ids, width):
    shape = tf.concat([tf.shape(ids), [width]], axis=0)
    rows = tf.reshape(rows, shape)
    rows.set_shape(ids.shape.concatenate(width))
    return rows
