"""LiteRT files: written, checked and run."""

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.interpreter import LiteRTModel

__all__ = [
    "LiteRTModel",
    "export_litert",
]
