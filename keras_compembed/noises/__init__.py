"""Distributions of noise classes."""

from keras_compembed.noises.learned_noise import LearnedNoise
from keras_compembed.noises.noise import Noise
from keras_compembed.noises.uniform_noise import UniformNoise
from keras_compembed.noises.unigram_noise import UnigramNoise

__all__ = [
    "LearnedNoise",
    "Noise",
    "UniformNoise",
    "UnigramNoise",
]
