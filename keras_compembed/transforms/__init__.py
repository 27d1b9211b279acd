"""Ways to hold the transform of an `ANTEmbedding`, and what shrinks it."""

from keras_compembed.transforms.l1 import L1
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.transform import Mixture
from keras_compembed.transforms.transform import Transform

__all__ = [
    "L1",
    "Mixture",
    "SparseRows",
    "Transform",
]
