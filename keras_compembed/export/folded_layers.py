"""`Dense` and `Conv1D` layers folded into tables while a model is traced."""

import dataclasses

import keras
import tensorflow as tf

from keras_compembed.export.linear_trace import read_kernel
from keras_compembed.export.marks import Texts
from keras_compembed.export.row_costs import NUMBER_BYTES
from keras_compembed.export.texts_of_ids import unflatten

# Part of what layers take in a file that may be added to make them faster.
_SMALL_PART = 0.02


def folding_pays(options, vectors, width, kept=0, kernels=0):
    """Whether kernels shall become part of a table."""
    products, quantize = vectors.products, options.quantize
    if not products.can_fold:
        return False
    number = NUMBER_BYTES[quantize]
    # Of layers, unlike of codebooks.
    of_kernel = 4 if quantize == "int8_codebooks" else number
    before = number * products.num_numbers
    before += of_kernel * products.width * width
    after = number * (products.columns * width + kept) + of_kernel * kernels
    goal = options.optimize_for
    if goal in ("size", "memory"):
        return after < before
    if not products.folds_faster(
        width, vectors.features is not None, vectors.length
    ):
        return False
    small = _SMALL_PART * (products.num_bytes + before)
    return goal == "latency" or after - before <= small


def folded_dense(trace, layer):
    """A `call` for a `Dense` where rows go in, or sums of them."""
    original = layer.call

    def call(inputs, *args, **kwargs):
        vectors, key = trace.find(inputs, layer)
        if vectors is None or not folding_pays(
            trace.options, vectors, layer.units
        ):
            return original(inputs, *args, **kwargs)
        kernel = read_kernel(layer)

        def reference(ids):
            return tf.linalg.matmul(vectors.reference(ids), kernel)

        if vectors.features is not None:
            matrix = trace.fold(vectors.products, layer)
            outputs = trace.multiply(vectors, matrix, reference)
        else:
            flat = dataclasses.replace(
                vectors, ids=tf.reshape(vectors.ids, [-1])
            )
            outputs = trace.mark(
                flat,
                Texts(reference, window=0),
                lambda ids: vectors.products.rows(ids, kernel),
            )
            outputs = unflatten(outputs, vectors.ids, layer.units)
        trace.add_site(key, layer, vectors, outputs, layer.units)
        return _finish(layer, outputs)

    return call


def folded_convolution(trace, layer):
    """A `call` for a `Conv1D` where rows go in."""
    original = layer.call

    def call(inputs, *args, **kwargs):
        vectors, key = trace.find(inputs, layer)
        taps, _, filters = layer.kernel.shape
        if (
            vectors is None
            or vectors.features is not None
            or vectors.ids.shape.rank != 2
            or not vectors.products.can_spread
            or not folding_pays(trace.options, vectors, taps * filters)
        ):
            return original(inputs, *args, **kwargs)
        kernel = read_kernel(layer)
        folded = trace.fold(vectors.products, layer)
        outputs = trace.mark(
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
        trace.add_site(key, layer, vectors, outputs, taps * filters)
        return _finish(layer, outputs)

    return call


def _convolve(layer, inputs, kernel):
    """What a `Conv1D` gives before bias and activation, by another kernel."""
    padding = layer.padding
    if padding == "causal":
        before = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
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


def is_plain(layer):
    """Whether a `Dense` or `Conv1D` computes what its kernel says."""
    return (
        layer.built
        and "call" not in vars(layer)
        and getattr(layer, "quantization_mode", None) is None
        and not layer.lora_enabled
        and keras.backend.is_float_dtype(layer.kernel.dtype)
    )


def _finish(layer, outputs):
    """What a layer gives, from its product: by its bias and activation."""
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    if layer.activation is not None:
        outputs = layer.activation(outputs)
    return outputs
