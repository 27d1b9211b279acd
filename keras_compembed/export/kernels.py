"""Kernels of `Dense` and `Conv1D`, and what is around them."""

import keras
import tensorflow as tf


def is_plain(layer):
    """Whether a `Dense` or `Conv1D` computes what its kernel says."""
    return (
        layer.built
        and "call" not in vars(layer)
        and getattr(layer, "quantization_mode", None) is None
        and not layer.lora_enabled
        and keras.backend.is_float_dtype(layer.kernel.dtype)
    )


def read_kernel(layer):
    """The kernel of a layer as a float32 array."""
    # Not in the function that is traced.
    with tf.init_scope():
        return keras.ops.convert_to_numpy(layer.kernel).astype("float32")


def finish(layer, outputs):
    """What a layer gives, from its product: by its bias and activation."""
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    if layer.activation is not None:
        outputs = layer.activation(outputs)
    return outputs
