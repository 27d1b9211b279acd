"""Embeddings, losses and class layers to compare with, not installed."""

from benchmarks.baselines.adaptive_softmax import AdaptiveSoftmax
from benchmarks.baselines.deep_hash_embedding import DeepHashEmbedding
from benchmarks.baselines.hash_embedding import HashEmbedding
from benchmarks.baselines.hierarchical_softmax import HierarchicalSoftmax
from benchmarks.baselines.losses import BlackOutLoss
from benchmarks.baselines.losses import FullSoftmaxLoss
from benchmarks.baselines.losses import GBCELoss
from benchmarks.baselines.quotient_remainder_embedding import (
    QuotientRemainderEmbedding,
)
from benchmarks.baselines.random_code_learner import RandomCodeLearner
from benchmarks.baselines.rece_loss import RECELoss
from benchmarks.baselines.sce_loss import SCELoss
from benchmarks.baselines.tensor_train_embedding import TensorTrainEmbedding
from benchmarks.baselines.word2ket_embedding import Word2KetEmbedding

__all__ = [
    "AdaptiveSoftmax",
    "BlackOutLoss",
    "DeepHashEmbedding",
    "FullSoftmaxLoss",
    "GBCELoss",
    "HashEmbedding",
    "HierarchicalSoftmax",
    "QuotientRemainderEmbedding",
    "RECELoss",
    "RandomCodeLearner",
    "SCELoss",
    "TensorTrainEmbedding",
    "Word2KetEmbedding",
]
