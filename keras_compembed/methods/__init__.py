"""Methods to store an embedding table in few bytes."""

from keras_compembed.methods.anchors import Anchors
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.pruned import Pruned
from keras_compembed.methods.quantized import Quantized
from keras_compembed.methods.tiered import Tiered

__all__ = [
    "Anchors",
    "Codes",
    "Pruned",
    "Quantized",
    "Tiered",
]
