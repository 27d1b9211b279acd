"""Rivals of the package's layers and losses, to be put in their places.

Of `CANESoftmax` and `CANELoss`, and of `CodeEmbedding` and `ANTEmbedding`.
"""

from keras_compembed.baselines.adaptive_softmax import AdaptiveSoftmax
from keras_compembed.baselines.blackout_loss import BlackOutLoss
from keras_compembed.baselines.deep_hash_embedding import DeepHashEmbedding
from keras_compembed.baselines.full_softmax_loss import FullSoftmaxLoss
from keras_compembed.baselines.gbce_loss import GBCELoss
from keras_compembed.baselines.hash_embedding import HashEmbedding
from keras_compembed.baselines.hierarchical_softmax import HierarchicalSoftmax
from keras_compembed.baselines.in_batch_softmax_loss import InBatchSoftmaxLoss
from keras_compembed.baselines.nce_loss import NCELoss
from keras_compembed.baselines.pruned_vocabulary_embedding import (
    PrunedVocabularyEmbedding,
)
from keras_compembed.baselines.quotient_remainder_embedding import (
    QuotientRemainderEmbedding,
)
from keras_compembed.baselines.rece_loss import RECELoss
from keras_compembed.baselines.sampled_softmax_loss import SampledSoftmaxLoss
from keras_compembed.baselines.sce_loss import SCELoss
from keras_compembed.baselines.sparse_embedding import SparseEmbedding
from keras_compembed.baselines.tensor_train_embedding import (
    TensorTrainEmbedding,
)
from keras_compembed.baselines.word2ket_embedding import Word2KetEmbedding

__all__ = [
    "AdaptiveSoftmax",
    "BlackOutLoss",
    "DeepHashEmbedding",
    "FullSoftmaxLoss",
    "GBCELoss",
    "HashEmbedding",
    "HierarchicalSoftmax",
    "InBatchSoftmaxLoss",
    "NCELoss",
    "PrunedVocabularyEmbedding",
    "QuotientRemainderEmbedding",
    "RECELoss",
    "SCELoss",
    "SampledSoftmaxLoss",
    "SparseEmbedding",
    "TensorTrainEmbedding",
    "Word2KetEmbedding",
]
