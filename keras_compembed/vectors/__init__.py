"""Files of word vectors, in and out, and their vectors compressed."""

from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.vectors.word_vectors import WordVectors

__all__ = ["CompressedVectors", "WordVectors"]
