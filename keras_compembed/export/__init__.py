"""Writes, checks, inspects and runs LiteRT files."""

from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.mediapipe_model import MediaPipeModel
from keras_compembed.export.target import Target

__all__ = [
    "LiteRTModel",
    "MediaPipeModel",
    "Target",
    "inspect_litert",
]
