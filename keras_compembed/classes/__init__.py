"""Selectors, noise and trees for a softmax over many classes."""

from keras_compembed.classes.approximate_nearest import ApproximateNearest
from keras_compembed.classes.beam_tree import BeamTree
from keras_compembed.classes.class_tree import ClassTree
from keras_compembed.classes.fitted_search import calibrate_beam
from keras_compembed.classes.fitted_search import fit_search
from keras_compembed.classes.noise import LearnedNoise
from keras_compembed.classes.noise import UnigramNoise
from keras_compembed.classes.selectors import AllClasses
from keras_compembed.classes.selectors import FrequencySubsets
from keras_compembed.classes.selectors import FrequentClasses
from keras_compembed.classes.selectors import NGram
from keras_compembed.classes.selectors import Selector

__all__ = [
    "AllClasses",
    "ApproximateNearest",
    "BeamTree",
    "ClassTree",
    "FrequencySubsets",
    "FrequentClasses",
    "LearnedNoise",
    "NGram",
    "Selector",
    "UnigramNoise",
    "calibrate_beam",
    "fit_search",
]
