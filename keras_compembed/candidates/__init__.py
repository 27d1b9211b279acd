"""Candidate classes, noise classes, and trees over classes."""

from keras_compembed.candidates.approximate_nearest import ApproximateNearest
from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.candidates.calibrate_beam import beam_recall
from keras_compembed.candidates.calibrate_beam import calibrate_beam
from keras_compembed.candidates.class_tree import ClassTree
from keras_compembed.candidates.frequency_subsets import FrequencySubsets
from keras_compembed.candidates.frequent_classes import FrequentClasses
from keras_compembed.candidates.function_selector import FunctionSelector
from keras_compembed.candidates.learned_noise import LearnedNoise
from keras_compembed.candidates.n_gram import NGram
from keras_compembed.candidates.noise import Noise
from keras_compembed.candidates.selector import Selector
from keras_compembed.candidates.uniform_noise import UniformNoise
from keras_compembed.candidates.unigram_noise import UnigramNoise

__all__ = [
    "ApproximateNearest",
    "BeamTree",
    "ClassTree",
    "FrequencySubsets",
    "FrequentClasses",
    "FunctionSelector",
    "LearnedNoise",
    "NGram",
    "Noise",
    "Selector",
    "UniformNoise",
    "UnigramNoise",
    "beam_recall",
    "calibrate_beam",
]
