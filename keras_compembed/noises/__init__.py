"""Distributions of noise classes."""

from keras_compembed.noises.noise import LearnedNoise
from keras_compembed.noises.noise import Noise
from keras_compembed.noises.noise import UniformNoise
from keras_compembed.noises.noise import UnigramNoise
from keras_compembed.utils.validation import require

__all__ = ["LearnedNoise", "UnigramNoise"]
_NOISES = {"uniform": UniformNoise, "learned": LearnedNoise}


def get_noise(identifier):
    noise = identifier
    if isinstance(noise, str) and noise in _NOISES:
        noise = _NOISES[noise]()
    require(
        isinstance(noise, Noise),
        '`noise` must be "uniform", "learned", or an instance such as '
        "`keras_compembed.noises.UnigramNoise(counts)`.",
        noise=identifier,
    )
    return noise
