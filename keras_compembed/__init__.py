"""Keras layers for small embedding tables and cheap, huge softmaxes.

Layers, losses, metrics and functions for whole models are here. Their options
and parts are in namespaces such as `keras_compembed.learners` and
`keras_compembed.anchors`.
"""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_compembed needs Keras's TensorFlow backend. Set the "
        "environment variable KERAS_BACKEND=tensorflow. "
        f"Received: KERAS_BACKEND={keras.backend.backend()}."
    )

from keras_compembed import anchors
from keras_compembed import classes
from keras_compembed import compositions
from keras_compembed import compression
from keras_compembed import distribution
from keras_compembed import export
from keras_compembed import learners
from keras_compembed import methods
from keras_compembed import optimizers
from keras_compembed import reports
from keras_compembed import text
from keras_compembed import tuning
from keras_compembed import vectors
from keras_compembed.classes.losses import CANELoss
from keras_compembed.classes.losses import InBatchSoftmaxLoss
from keras_compembed.classes.losses import NCELoss
from keras_compembed.classes.losses import SampledSoftmaxLoss
from keras_compembed.classes.metrics import ClassAccuracy
from keras_compembed.classes.metrics import Coverage
from keras_compembed.classes.metrics import NDCGAtK
from keras_compembed.classes.metrics import Perplexity
from keras_compembed.classes.metrics import PrecisionAtK
from keras_compembed.classes.metrics import PropensityScoredPrecisionAtK
from keras_compembed.classes.metrics import RecallAtK
from keras_compembed.classes.sampling import Sampling
from keras_compembed.compression.budget import Budget
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.from_tf_keras import from_tf_keras
from keras_compembed.compression.grow import grow
from keras_compembed.compression.strip import strip
from keras_compembed.export.export_litert import export_litert
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.feature_embedding import FeatureEmbedding
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.layers.pruned_vocabulary_embedding import (
    PrunedVocabularyEmbedding,
)
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.layers.sparse_embedding import SparseEmbedding
from keras_compembed.layers.top_classes import TopClasses
from keras_compembed.layers.top_classes import top_k_model
from keras_compembed.presets.from_preset import from_preset
from keras_compembed.presets.save_preset import save_preset
from keras_compembed.reports.size_report import size_report
from keras_compembed.stores.store import WeightSpec
from keras_compembed.version import __version__ as __version__

__all__ = [
    "ANTEmbedding",
    "Budget",
    "CANELoss",
    "CANESoftmax",
    "ClassAccuracy",
    "CodeEmbedding",
    "Combiner",
    "Coverage",
    "FeatureEmbedding",
    "InBatchSoftmaxLoss",
    "NCELoss",
    "NDCGAtK",
    "Perplexity",
    "PrecisionAtK",
    "PropensityScoredPrecisionAtK",
    "PrunedVocabularyEmbedding",
    "QuantizedEmbedding",
    "RecallAtK",
    "Reverse",
    "SampledSoftmaxLoss",
    "Sampling",
    "SparseEmbedding",
    "TopClasses",
    "WeightSpec",
    "anchors",
    "classes",
    "compositions",
    "compress_model",
    "compression",
    "distribution",
    "export",
    "export_litert",
    "from_preset",
    "from_tf_keras",
    "grow",
    "learners",
    "methods",
    "optimizers",
    "reports",
    "size_report",
    "save_preset",
    "strip",
    "text",
    "top_k_model",
    "tuning",
    "vectors",
]

# `dir` shows public names only.
__dir__ = __all__.copy
for _part in map(globals().get, __all__):
    if hasattr(_part, "__all__"):
        _part.__dir__ = _part.__all__.copy
