"""Keras layers for small embedding tables and cheap, huge softmaxes."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_compembed needs Keras's TensorFlow backend. Set the "
        "environment variable KERAS_BACKEND=tensorflow. "
        f"Received: KERAS_BACKEND={keras.backend.backend()}."
    )

from keras_compembed import anchors
from keras_compembed import baselines
from keras_compembed import candidates
from keras_compembed.codes.additive_quantizer import AdditiveQuantizer
from keras_compembed.codes.code_learner import CodeLearner
from keras_compembed.codes.composition import Composition
from keras_compembed.codes.concat_composition import ConcatComposition
from keras_compembed.codes.gumbel_code_learner import GumbelCodeLearner
from keras_compembed.codes.kd_code_learner import KDCodeLearner
from keras_compembed.codes.linear_composition import LinearComposition
from keras_compembed.codes.lstm_composition import LSTMComposition
from keras_compembed.codes.random_codes import RandomCodes
from keras_compembed.codes.scaled_composition import ScaledComposition
from keras_compembed.codes.sum_composition import SumComposition
from keras_compembed.codes.temperature_schedule import TemperatureSchedule
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.recode_embeddings import RecodeEmbeddings
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.top_classes import TopClasses
from keras_compembed.layers.top_classes import top_k_model
from keras_compembed.losses.cane_loss import CANELoss
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.metrics.class_accuracy import ClassAccuracy
from keras_compembed.metrics.coverage import Coverage
from keras_compembed.metrics.perplexity import Perplexity
from keras_compembed.optimizers.sparse_row_optimizer import SparseRowOptimizer
from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.code_statistics import codes_of_words
from keras_compembed.reports.code_statistics import format_codes
from keras_compembed.reports.code_statistics import words_sharing_codes
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.plots import plot_accuracy_against_size
from keras_compembed.reports.plots import plot_code_balance
from keras_compembed.reports.size_report import size_report
from keras_compembed.version import __version__

__all__ = [
    "ANTEmbedding",
    "AdditiveQuantizer",
    "CANELoss",
    "CANESoftmax",
    "ClassAccuracy",
    "ClassLoss",
    "CodeEmbedding",
    "CodeLearner",
    "Composition",
    "ConcatComposition",
    "Coverage",
    "GumbelCodeLearner",
    "KDCodeLearner",
    "LSTMComposition",
    "LinearComposition",
    "LiteRTModel",
    "Perplexity",
    "RandomCodes",
    "RecodeEmbeddings",
    "ScaledComposition",
    "SparseRowOptimizer",
    "SumComposition",
    "TemperatureSchedule",
    "TopClasses",
    "__version__",
    "anchors",
    "baselines",
    "candidates",
    "code_balance",
    "code_usage",
    "codes_of_words",
    "compress_model",
    "export_litert",
    "fidelity",
    "format_codes",
    "plot_accuracy_against_size",
    "plot_code_balance",
    "size_report",
    "top_k_model",
    "words_sharing_codes",
]
