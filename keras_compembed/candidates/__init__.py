"""Selectors of candidate classes, and what they select by."""

from keras_compembed.candidates.approximate_nearest import ApproximateNearest
from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.candidates.count_selectors import AllClasses
from keras_compembed.candidates.count_selectors import FrequencySubsets
from keras_compembed.candidates.count_selectors import FrequentClasses
from keras_compembed.candidates.count_selectors import NGram
from keras_compembed.candidates.fitted_search import calibrate_beam
from keras_compembed.candidates.fitted_search import fit_search
from keras_compembed.candidates.selector import CandidateGroups
from keras_compembed.candidates.selector import Selector

__all__ = [
    "AllClasses",
    "ApproximateNearest",
    "BeamTree",
    "CandidateGroups",
    "FrequencySubsets",
    "FrequentClasses",
    "NGram",
    "Selector",
    "calibrate_beam",
    "fit_search",
]
