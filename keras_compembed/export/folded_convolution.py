"""`Conv1D` layers folded into codebooks while a model is traced."""

import keras
import tensorflow as tf

from keras_compembed.export.kernels import finish
from keras_compembed.export.kernels import read_kernel
from keras_compembed.export.marks import Texts


class FoldedConvolution:
    """Stands in for a `Conv1D`, where rows go in."""

    def __init__(self, trace, rule, layer):
        self._trace, self._rule = trace, rule
        self._layer, self._original = layer, layer.call

    def call(self, inputs, *args, **kwargs):
        """In place of the layer's own."""
        layer, original = self._layer, self._original
        vectors, key = self._trace.find(inputs, layer)
        taps, _, filters = layer.kernel.shape
        if (
            vectors is None
            or vectors.features is not None
            or vectors.ids.shape.rank != 2
            or not vectors.products.can_spread
            or not self._rule.pays(vectors, taps * filters)
        ):
            return original(inputs, *args, **kwargs)
        kernel = read_kernel(layer)
        folded = self._trace.fold(vectors.products, layer)
        outputs = self._trace.mark(
            vectors,
            Texts(
                lambda ids: _convolve(layer, vectors.reference(ids), kernel),
                window=1 + layer.dilation_rate[0] * (taps - 1),
                step=layer.strides[0],
            ),
            lambda ids: _convolve(
                layer, vectors.products.spread(ids), tf.constant(folded)
            ),
        )
        self._trace.add_site(key, layer, vectors, outputs, taps * filters)
        return finish(layer, outputs)


def _convolve(layer, inputs, kernel):
    """What a `Conv1D` gives before bias and activation, by another kernel."""
    padding, dilation = layer.padding, layer.dilation_rate[0]
    if padding == "causal":
        before = dilation * (layer.kernel_size[0] - 1)
        inputs = keras.ops.pad(inputs, [[0, 0], [before, 0], [0, 0]])
        padding = "valid"
    return keras.ops.conv(
        inputs,
        kernel,
        strides=list(layer.strides),
        padding=padding,
        data_format=layer.data_format,
        dilation_rate=layer.dilation_rate,
    )
