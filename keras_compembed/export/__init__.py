"""LiteRT files: written, checked and run."""

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.file_contents import FileMetadata
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.mediapipe_model import MediaPipeModel
from keras_compembed.export.target import Target

__all__ = [
    "FileMetadata",
    "LiteRTModel",
    "MediaPipeModel",
    "Target",
    "export_litert",
    "inspect_litert",
]
