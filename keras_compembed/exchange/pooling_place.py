"""What takes the place of a pooling that the layer before it does."""

import keras


@keras.saving.register_keras_serializable(package="keras_compembed")
class PooledBefore(keras.Operation):
    """Gives what it gets, vectors `(batch, width)` that are pooled already."""

    def __init__(self, keepdims=False, *, name=None):
        super().__init__(name=name)
        self.keepdims = keepdims

    def call(self, inputs):
        if not self.keepdims:
            return inputs
        return keras.ops.expand_dims(inputs, 1)

    def compute_output_spec(self, inputs):
        batch, width = inputs.shape
        shape = (batch, 1, width) if self.keepdims else (batch, width)
        return keras.KerasTensor(shape, dtype=inputs.dtype)


def pooled_before(operation, width):
    """What takes the place of a pooling, with its name."""
    if not isinstance(operation, keras.layers.Layer):
        return PooledBefore(operation.keepdims, name=operation.name)
    if operation.keepdims:
        layer = keras.layers.Reshape((1, width), name=operation.name)
    else:
        layer = keras.layers.Identity(name=operation.name)
    # Not as an argument, of which the config of an `Identity` cannot tell.
    layer.dtype_policy = operation.dtype_policy
    return layer
