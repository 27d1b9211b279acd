import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.transforms import L1
from keras_compembed.transforms.registry import get_l1


def test_follows_the_target():
    l1 = L1(1e-3, target_nonzeros=100)

    def following(count):
        return float(l1.follow_target(tf.constant(0.5), tf.constant(count)))

    assert following(99) == 0.5
    np.testing.assert_allclose(following(120), 0.5 * 1.21**0.5, rtol=1e-6)
    np.testing.assert_allclose(following(80), 0.5 * 0.81**0.5, rtol=1e-6)
    # No more than by 1.5 at a time.
    np.testing.assert_allclose(following(10_000), 0.75, rtol=1e-6)
    np.testing.assert_allclose(following(0), 0.5 / 1.5, rtol=1e-6)


def test_config():
    l1 = L1(0.1, False, "learning_rate", 7)
    config = keras.saving.serialize_keras_object(l1)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == l1.get_config()
    assert not again.by_coordinate and L1().by_coordinate


def test_subclass_is_kept():
    class Doubling(L1):
        def follow_target(self, l1, count):
            return 2 * l1

    l1 = Doubling(0.1, target_nonzeros=7)
    own = get_l1(l1)
    assert own is not l1 and own.follow_target(0.5, 3) == 1.0
    assert own.get_config() == l1.get_config()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"l1": -1e-5}, "`l1` must be a number of at least 0"),
        ({"non_negative": 1}, "`non_negative` must be True or False"),
        ({"threshold": "adam"}, "`threshold` must be one of"),
        ({"target_nonzeros": 0}, "`target_nonzeros` must be a positive"),
        ({"target_nonzeros": 9, "l1": 0}, "with a positive `l1`"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        L1(**arguments)
