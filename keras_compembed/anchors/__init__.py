"""Anchors, relations and transforms of an `ANTEmbedding`."""

from keras_compembed.anchors.data_initializers import Frequency
from keras_compembed.anchors.data_initializers import KMeansPlusPlus
from keras_compembed.anchors.l1 import L1
from keras_compembed.anchors.relations import Relations
from keras_compembed.anchors.transform import Transform

__all__ = [
    "Frequency",
    "KMeansPlusPlus",
    "L1",
    "Relations",
    "Transform",
]
