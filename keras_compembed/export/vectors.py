"""What is known of a tensor while a model is traced."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf


@dataclasses.dataclass(eq=False)
class Vectors:
    """What is known of a tensor."""

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
