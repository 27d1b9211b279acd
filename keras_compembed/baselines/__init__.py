"""Rivals of `CANESoftmax` and `CANELoss`, to be put in their places."""

from keras_compembed.baselines.adaptive_softmax import AdaptiveSoftmax
from keras_compembed.baselines.blackout_loss import BlackOutLoss
from keras_compembed.baselines.full_softmax_loss import FullSoftmaxLoss
from keras_compembed.baselines.hierarchical_softmax import HierarchicalSoftmax
from keras_compembed.baselines.nce_loss import NCELoss
from keras_compembed.baselines.sampled_softmax_loss import SampledSoftmaxLoss

__all__ = [
    "AdaptiveSoftmax",
    "BlackOutLoss",
    "FullSoftmaxLoss",
    "HierarchicalSoftmax",
    "NCELoss",
    "SampledSoftmaxLoss",
]
