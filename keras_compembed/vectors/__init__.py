"""Reads, compresses and writes word vectors."""

from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.vectors.read_vectors import open_table
from keras_compembed.vectors.read_vectors import read_vectors
from keras_compembed.vectors.word_vectors import WordVectors

__all__ = [
    "CompressedVectors",
    "WordVectors",
    "open_table",
    "read_vectors",
]
