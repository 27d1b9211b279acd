"""Anchor initializers, and what is known of how ids relate."""

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.anchor_initializer import Orthogonality
from keras_compembed.anchors.data_initializers import Frequency
from keras_compembed.anchors.data_initializers import (
    FrequencyThenKMeansPlusPlus,
)
from keras_compembed.anchors.data_initializers import KMeansPlusPlus
from keras_compembed.anchors.data_initializers import TfIdf
from keras_compembed.anchors.relations import Relations

__all__ = [
    "AnchorInitializer",
    "Frequency",
    "FrequencyThenKMeansPlusPlus",
    "Given",
    "KMeansPlusPlus",
    "Orthogonality",
    "Relations",
    "TfIdf",
]
