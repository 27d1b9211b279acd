"""`Dense` and `Conv1D` layers folded into tables while a model is traced."""

import dataclasses

import keras
import tensorflow as tf

from keras_compembed.export.linear_trace import read_kernel
from keras_compembed.export.marks import Texts
from keras_compembed.litert.row_costs import NUMBER_BYTES
from keras_compembed.litert.texts_of_ids import unflatten

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


def can_fold(layer, quantize):
    """Whether a layer computes what its kernel says, in ops of its table."""
    kind = type(layer)
    if kind is keras.layers.Conv1D:
        is_usual = (
            # Only of matrices, not of kernels, can int8 be asked for.
            quantize != "int8_codebooks"
            and layer.groups == 1
            and layer.data_format == "channels_last"
        )
    else:
        is_usual = kind is keras.layers.Dense
    return (
        is_usual
        and layer.built
        and "call" not in vars(layer)
        and getattr(layer, "quantization_mode", None) is None
        and not layer.lora_enabled
        and keras.backend.is_float_dtype(layer.kernel.dtype)
    )


def folded(trace, layer):
    """A `call` for a `Dense` or `Conv1D` where rows go in, or sums of them."""
    original, is_dense = layer.call, isinstance(layer, keras.layers.Dense)

    def call(inputs, *args, **kwargs):
        vectors, key = trace.find(inputs, layer)
        width = layer.kernel.shape[-1]
        if not is_dense:
            width *= layer.kernel.shape[0]
        if (
            vectors is None
            or not (is_dense or _can_convolve(vectors))
            or not folding_pays(trace.options, vectors, width)
        ):
            return original(inputs, *args, **kwargs)
        multiply = _multiply if is_dense else _convolve
        outputs = multiply(trace, layer, vectors, read_kernel(layer))
        trace.add_site(key, layer, vectors, outputs, width)
        if layer.bias is not None:
            outputs = keras.ops.add(outputs, layer.bias)
        if layer.activation is not None:
            outputs = layer.activation(outputs)
        return outputs

    return call


def _multiply(trace, layer, vectors, kernel):
    """Products of rows, or of sums of them, with the kernel of a `Dense`."""

    def reference(ids):
        return tf.linalg.matmul(vectors.reference(ids), kernel)

    if vectors.features is not None:
        return trace.multiply(vectors, layer, reference)
    outputs = trace.mark(
        dataclasses.replace(vectors, ids=tf.reshape(vectors.ids, [-1])),
        Texts(reference, window=0),
        lambda ids: vectors.products.rows(ids, kernel),
    )
    return unflatten(outputs, vectors.ids, layer.units)


def _can_convolve(vectors):
    return (
        vectors.features is None
        and vectors.ids.shape.rank == 2
        and vectors.products.can_spread
    )


def _convolve(trace, layer, vectors, kernel):
    """Products of rows with the kernel of a `Conv1D`."""
    folded = trace.fold(vectors.products, layer)
    return trace.mark(
        vectors,
        Texts(
            lambda ids: _conv(layer, vectors.reference(ids), kernel),
            window=1 + layer.dilation_rate[0] * (layer.kernel_size[0] - 1),
            step=layer.strides[0],
        ),
        lambda ids: _conv(
            layer, vectors.products.spread(ids), tf.constant(folded)
        ),
    )


def _conv(layer, inputs, kernel):
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
