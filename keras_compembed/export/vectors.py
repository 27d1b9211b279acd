"""What is known of a tensor while a model is traced."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf


@dataclasses.dataclass(eq=False)
class Vectors:
    """What is known of a tensor.

    Attributes:
        tensor: The tensor, vectors of a look-up layer or sums of them; None
            if nothing is composed.
        layer: The look-up layer.
        inputs: Tensor that the layer was called with.
        ids: The same as int32.
        products: `CodeProducts` or `AnchorProducts`.
        reference: Function from int32 arrays of ids to what Keras gives.
        features: For sums, function from ids to features.
        finish: For sums, function of what features times a matrix are, and of
            ids.
        is_held: Boolean, whether `reference` needs nothing but ids.
    """

    tensor: tf.Tensor
    layer: keras.layers.Layer
    inputs: tf.Tensor
    ids: tf.Tensor
    products: object
    reference: Callable
    features: Callable | None = None
    finish: Callable | None = None
    is_held: bool = True

    @property
    def length(self):
        """Ids of each text, or None if that is open."""
        return self.ids.shape[1] if self.ids.shape.rank == 2 else None
