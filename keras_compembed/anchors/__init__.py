"""Anchor initializers, and what is known of how ids relate."""

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.frequency import Frequency
from keras_compembed.anchors.frequency import TfIdf
from keras_compembed.anchors.given import Given
from keras_compembed.anchors.k_means_plus_plus import (
    FrequencyThenKMeansPlusPlus,
)
from keras_compembed.anchors.k_means_plus_plus import KMeansPlusPlus
from keras_compembed.anchors.orthogonality import Orthogonality
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
