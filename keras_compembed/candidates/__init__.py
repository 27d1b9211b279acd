"""Selectors of candidate classes, and what they select by."""

from keras_compembed.candidates.all_classes import AllClasses
from keras_compembed.candidates.approximate_nearest import ApproximateNearest
from keras_compembed.candidates.beam_calibration import beam_recall
from keras_compembed.candidates.beam_calibration import calibrate_beam
from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.candidates.candidate_groups import CandidateGroups
from keras_compembed.candidates.class_scores import ClassScores
from keras_compembed.candidates.fitted_search import fit_search
from keras_compembed.candidates.frequency_subsets import FrequencySubsets
from keras_compembed.candidates.frequent_classes import FrequentClasses
from keras_compembed.candidates.function_selector import FunctionSelector
from keras_compembed.candidates.n_gram import NGram
from keras_compembed.candidates.nearest_centers import NearestCenters
from keras_compembed.candidates.selector import Selector
from keras_compembed.candidates.union import Union

__all__ = [
    "AllClasses",
    "ApproximateNearest",
    "BeamTree",
    "CandidateGroups",
    "ClassScores",
    "FrequencySubsets",
    "FrequentClasses",
    "FunctionSelector",
    "NGram",
    "NearestCenters",
    "Selector",
    "Union",
    "beam_recall",
    "calibrate_beam",
    "fit_search",
]
