"""Noises from what users pass for them."""

import keras

from keras_compembed.noises.learned_noise import LearnedNoise
from keras_compembed.noises.noise import Noise
from keras_compembed.noises.uniform_noise import UniformNoise

_NOISES = {"uniform": UniformNoise, "learned": LearnedNoise}


def get_noise(identifier):
    """Turns what a user passed into a `Noise`."""
    if isinstance(identifier, dict) and "class_name" in identifier:
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Noise):
        return identifier
    if isinstance(identifier, str) and identifier in _NOISES:
        return _NOISES[identifier]()
    raise ValueError(
        "`noise` must be 'uniform', 'learned', or an instance such as "
        "`keras_compembed.noises.UnigramNoise(counts)`. "
        f"Received: noise={identifier!r}."
    )
