"""Candidate classes, noise classes, and trees over classes."""

from keras_compembed.candidates.class_tree import ClassTree
from keras_compembed.candidates.learned_noise import LearnedNoise
from keras_compembed.candidates.noise import Noise
from keras_compembed.candidates.uniform_noise import UniformNoise
from keras_compembed.candidates.unigram_noise import UnigramNoise

__all__ = ["ClassTree", "LearnedNoise", "Noise", "UniformNoise", "UnigramNoise"]
