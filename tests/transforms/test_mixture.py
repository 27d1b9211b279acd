import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.transforms import Mixture
from keras_compembed.transforms.activations import ACTIVATIONS

ROWS = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_each_segment_sums_to_one(activation):
    mixture = Mixture(2, activation)
    weights = mixture(tf.constant(ROWS), (2, 4))
    for part in (weights[:, :2], weights[:, 2:]):
        np.testing.assert_allclose(
            tf.reduce_sum(part, axis=1), np.ones(20), atol=1e-5
        )
    compiled = tf.function(mixture, jit_compile=True)
    np.testing.assert_allclose(
        compiled(tf.constant(ROWS), (2, 4)), weights, atol=1e-5
    )


def test_none_changes_nothing():
    rows = tf.constant(ROWS)
    assert Mixture()(rows, (6,)) is rows


def test_config():
    mixture = Mixture(3, "entmax")
    config = keras.saving.serialize_keras_object(mixture)
    again = keras.saving.deserialize_keras_object(config)
    assert again.num_sets == 3 and again.activation == "entmax"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_sets": 0}, "`num_sets` must be a positive integer"),
        ({"activation": "relu"}, "`activation` must be one of"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixture(**arguments)
