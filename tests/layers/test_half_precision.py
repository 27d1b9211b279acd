"""Layers learn in half precision what they learn in float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_cases import VECTORS

import keras_compembed as kc


def test_sparse_rows_are_not_trained_by_scaled_losses():
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    layer = kc.ANTEmbedding(60, 8, num_anchors=20, transform="sparse")
    model = keras.Sequential([layer, keras.layers.Flatten()])
    model.compile(scaled, "mse", jit_compile=False)
    with refused("transform", "sparse"):
        model.fit(np.ones((8, 5), int), np.ones((8, 40)), verbose=0)


def features(dtype):
    encoder = keras.layers.Dense(4, dtype="mixed_bfloat16")
    return kc.FeatureEmbedding(
        np.ones((50, 3)), encoder, dtype="mixed_bfloat16"
    )


REPEATED = {
    "features": features,
    "learned codes": lambda dtype: kc.CodeEmbedding(
        50, 8, 4, 16, "concat", codes="softmax", dtype=dtype
    ),
    **{
        name: VECTORS[name]
        for name in ("codes", "anchors-sparse", "vocabulary")
    },
}


@pytest.mark.parametrize("name", REPEATED)
def test_gradients_of_an_id_that_is_often_there_are_summed(name):
    """Padding is: 256 + 1 is 256 in bfloat16."""
    keras.utils.set_random_seed(0)
    layer = REPEATED[name](dtype="bfloat16")
    layer.build((None,))
    weights = [weight.value for weight in layer.trainable_weights]
    found = []
    for often in (1, 2048):
        with tf.GradientTape() as tape:
            vectors = layer(tf.fill((often,), 3), training=True)
        gradients = tape.gradient(vectors, weights, tf.ones_like(vectors))
        found.append(
            [
                tf.reduce_max(
                    tf.abs(tf.cast(tf.convert_to_tensor(x), "float32"))
                )
                for x in gradients
            ]
        )
    np.testing.assert_allclose(found[1], 2048 * np.array(found[0]), rtol=0.01)
