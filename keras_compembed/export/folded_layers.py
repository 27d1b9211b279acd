"""`Dense` and `Conv1D` layers of a copy folded into the tables before them."""

import functools

import keras
import tensorflow as tf

from keras_compembed.export.twin import Twin
from keras_compembed.litert.row_costs import NUMBER_BYTES

# Part of what layers take in a file that may be added to make them faster.
_SMALL_PART = 0.02


def fold_into(form, layer, owner, options, sums, length):
    """Pairs to exchange so that a look-up gives what its reader makes of it.

    Empty where that is not possible, or does not pay. `sums` tells whether
    vectors are added up before.
    """
    is_dense = type(owner) is keras.layers.Dense
    if not _can_fold(owner, form, options, sums):
        return {}
    kernel = keras.ops.convert_to_numpy(owner.kernel).astype("float32")
    width = kernel.shape[-1] if is_dense else kernel.shape[0] * kernel.shape[-1]
    if not _pays(options, form.products, sums, length, width):
        return {}
    finish = functools.partial(_finish, owner)
    if is_dense:
        form.kernel, layer.output_dim = kernel, owner.units
        return {owner: Twin(owner, finish)}
    kernel = tf.constant(form.products.fold(kernel))
    return {
        layer: Twin(layer, form.spread),
        owner: Twin(owner, lambda x: finish(_convolve(owner, x, kernel))),
    }


def _pays(options, products, sums, length, width):
    """Whether kernels shall become part of a table."""
    if not products.can_fold:
        return False
    quantize, goal = options.quantize, options.optimize_for
    number = NUMBER_BYTES[quantize]
    # Of layers, unlike of codebooks.
    of_kernel = 4 if quantize == "int8_codebooks" else number
    before = number * products.num_numbers
    before += of_kernel * products.width * width
    after = number * products.columns * width
    if goal in ("size", "memory"):
        return after < before
    if not products.folds_faster(width, sums, length):
        return False
    small = _SMALL_PART * (products.num_bytes + before)
    return goal == "latency" or after - before <= small


def _can_fold(owner, form, options, sums):
    """Whether a layer computes what its kernel says, in ops of its table."""
    if type(owner) is keras.layers.Conv1D:
        is_usual = (
            # Only of matrices, not of kernels, can int8 be asked for.
            options.quantize != "int8_codebooks"
            and owner.groups == 1
            and owner.data_format == "channels_last"
            and form.products.can_spread
            and not sums
        )
    else:
        is_usual = type(owner) is keras.layers.Dense
    return (
        is_usual
        and owner.built
        and owner.compute_dtype == "float32"
        and owner.quantization_mode is None
        and not owner.lora_enabled
        and keras.backend.is_float_dtype(owner.kernel.dtype)
    )


def _finish(layer, outputs):
    """Adds the bias of a layer, and its activation."""
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    return outputs if layer.activation is None else layer.activation(outputs)


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
