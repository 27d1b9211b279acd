"""A trained model in, a smaller one out."""

from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.recode_embeddings import RecodeEmbeddings

__all__ = [
    "RecodeEmbeddings",
    "compress_model",
]
