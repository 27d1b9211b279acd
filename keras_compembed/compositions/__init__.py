"""Compositions: how the codewords of a code become a vector."""

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.compositions.lstm_composition import LSTMComposition
from keras_compembed.compositions.scaled_composition import ScaledComposition
from keras_compembed.compositions.sum_composition import SumComposition

__all__ = [
    "Composition",
    "ConcatComposition",
    "LSTMComposition",
    "LinearComposition",
    "ScaledComposition",
    "SumComposition",
]
