"""Anchor initializers: from what users pass, and for what configs hold."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import random_basis
from keras_compembed.anchors.dynamic import Dynamic
from keras_compembed.anchors.given import Given
from keras_compembed.anchors.mixed import Mixed


def get_anchor_initializer(value, num_sets=1, seed=None):
    """Turns what a user passed into an `AnchorInitializer`."""
    if isinstance(value, (list, tuple)):
        value = Mixed([get_anchor_initializer(part) for part in value])
    if isinstance(value, dict) and "class_name" in value:
        value = keras.saving.deserialize_keras_object(value)
    if isinstance(value, str) and value == "dynamic":
        value = Dynamic(seed)
    if isinstance(value, np.ndarray) or keras.ops.is_tensor(value):
        value = Given(keras.ops.convert_to_numpy(value))
    if not isinstance(value, AnchorInitializer):
        raise ValueError(
            "`anchors_initializer` must be 'dynamic', an array of anchors "
            "(num_anchors, output_dim), or an instance such as "
            "`keras_compembed.anchors.Frequency(counts)`. "
            f"Received: anchors_initializer={value!r}."
        )
    if isinstance(value, Mixed):
        found = len(value.initializers)
        if num_sets not in (1, found):
            raise ValueError(
                "`anchors_initializer` must hold an initializer for each set "
                f"of anchors. Received: {found} for {num_sets} sets."
            )
        return value
    if num_sets == 1:
        return value
    if isinstance(value, Dynamic):
        # A seed each, or all sets would be the same.
        seeds = np.random.SeedSequence(value.seed).generate_state(num_sets)
        return Mixed([Dynamic(int(seed) >> 1) for seed in seeds])
    return Mixed([value] * num_sets)


def without_data(initializer, input_dim, num_anchors, output_dim):
    """The same choice without the data that it was made from."""
    if isinstance(initializer, Dynamic):
        return initializer
    if isinstance(initializer, Mixed):
        sizes = initializer.sizes(num_anchors)
        return Mixed(
            [
                without_data(part, input_dim, size, output_dim)
                for part, size in zip(
                    initializer.initializers, sizes, strict=True
                )
            ],
            initializer.given_sizes,
        )
    vectors = initializer.vectors(num_anchors, output_dim)
    drawn = random_basis(num_anchors, output_dim, initializer.seed)
    return Given(
        # What the seed gives again is left out.
        None if np.array_equal(vectors, drawn) else vectors,
        initializer.choose(input_dim, num_anchors),
        initializer.seed,
    )
