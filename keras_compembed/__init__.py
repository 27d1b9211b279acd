"""Keras layers that make embedding tables 10 to 100 times smaller."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_compembed needs Keras's TensorFlow backend. Set the "
        "environment variable KERAS_BACKEND=tensorflow. "
        f"Received: KERAS_BACKEND={keras.backend.backend()}."
    )

from keras_compembed.codes.additive_quantizer import AdditiveQuantizer
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.export.export_litert import export_litert
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.reports.size_report import size_report
from keras_compembed.version import __version__

__all__ = [
    "AdditiveQuantizer",
    "CodeEmbedding",
    "__version__",
    "compress_model",
    "export_litert",
    "size_report",
]
