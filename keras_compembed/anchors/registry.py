"""Anchor initializers from what users pass for them."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.dynamic import Dynamic
from keras_compembed.anchors.given import Given


def get_anchor_initializer(value):
    """Turns what a user passed into an `AnchorInitializer`.

    Args:
        value: `"dynamic"`, an array `(num_anchors, output_dim)` of anchors to
            start from, an `AnchorInitializer`, or the config of one as
            `keras.saving.serialize_keras_object` gives it.

    Raises:
        ValueError: if it is anything else.
    """
    if isinstance(value, dict) and "class_name" in value:
        value = keras.saving.deserialize_keras_object(value)
    if isinstance(value, AnchorInitializer):
        return value
    if isinstance(value, str) and value == "dynamic":
        return Dynamic()
    if isinstance(value, np.ndarray) or keras.ops.is_tensor(value):
        return Given(keras.ops.convert_to_numpy(value))
    raise ValueError(
        "`anchors_initializer` must be 'dynamic', an array of anchors "
        "(num_anchors, output_dim), or an instance such as "
        "`keras_compembed.anchors.Frequency(counts)`. "
        f"Received: anchors_initializer={value!r}."
    )
