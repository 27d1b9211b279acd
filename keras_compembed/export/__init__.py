"""LiteRT files: written, checked and run."""

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.litert_file import LiteRTFile

__all__ = [
    "LiteRTFile",
    "LiteRTModel",
    "export_litert",
    "inspect_litert",
]
