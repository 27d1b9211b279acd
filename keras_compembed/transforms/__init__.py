"""Ways to hold the transform of an `ANTEmbedding`, and what shrinks it."""

from keras_compembed.transforms.dense_rows import DenseRows
from keras_compembed.transforms.fixed_rows import FixedRows
from keras_compembed.transforms.l1 import L1
from keras_compembed.transforms.lazy_rows import LazyRows
from keras_compembed.transforms.mixture import Mixture
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.transforms.transform_rows import TransformRows

__all__ = [
    "DenseRows",
    "FixedRows",
    "L1",
    "LazyRows",
    "Mixture",
    "SparseRows",
    "SparseTransform",
    "TransformRows",
]
