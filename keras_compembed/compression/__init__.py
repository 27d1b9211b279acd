"""Compression of trained models."""

from keras_compembed.compression.budget import TuningData
from keras_compembed.compression.distill import distill
from keras_compembed.compression.find_size import find_frontier
from keras_compembed.compression.fit_compressed import fit_compressed
from keras_compembed.compression.magnitude_pruning import MagnitudePruning
from keras_compembed.compression.prune_vocabulary import prune_vocabulary
from keras_compembed.compression.recode_embeddings import RecodeEmbeddings

__all__ = [
    "MagnitudePruning",
    "RecodeEmbeddings",
    "TuningData",
    "distill",
    "find_frontier",
    "fit_compressed",
    "prune_vocabulary",
]
