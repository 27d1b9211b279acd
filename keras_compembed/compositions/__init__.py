"""Compositions: how the codewords of a code become a vector."""

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.lstm_composition import LSTMComposition

__all__ = [
    "Composition",
    "LSTMComposition",
    "LinearComposition",
]
