"""Compositions: how the codewords of a code become a vector."""

from keras_compembed.compositions.composition import Composition

__all__ = ["Composition"]
