"""Rivals of the package's layers and losses, to be put in their places.

Of `CANESoftmax` and `CANELoss`, and of `CodeEmbedding` and `ANTEmbedding`.
"""

from keras_compembed.baselines.adaptive_softmax import AdaptiveSoftmax
from keras_compembed.baselines.blackout_loss import BlackOutLoss
from keras_compembed.baselines.deep_hash_embedding import DeepHashEmbedding
from keras_compembed.baselines.full_softmax_loss import FullSoftmaxLoss
from keras_compembed.baselines.hash_embedding import HashEmbedding
from keras_compembed.baselines.hierarchical_softmax import HierarchicalSoftmax
from keras_compembed.baselines.nce_loss import NCELoss
from keras_compembed.baselines.pruned_vocabulary_embedding import (
    PrunedVocabularyEmbedding,
)
from keras_compembed.baselines.quotient_remainder_embedding import (
    QuotientRemainderEmbedding,
)
from keras_compembed.baselines.sampled_softmax_loss import SampledSoftmaxLoss
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
    "HashEmbedding",
    "HierarchicalSoftmax",
    "NCELoss",
    "PrunedVocabularyEmbedding",
    "QuotientRemainderEmbedding",
    "SampledSoftmaxLoss",
    "SparseEmbedding",
    "TensorTrainEmbedding",
    "Word2KetEmbedding",
]
