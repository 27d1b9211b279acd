"""Kinds of files that hold vectors: one module a kind, and their registry.

A kind says whether a file looks like one of its own, and reads it. It knows
files and arrays only.
"""

from keras_compembed.vectors.formats.registry import FORMATS
from keras_compembed.vectors.formats.registry import find_format

__all__ = ["FORMATS", "find_format"]
