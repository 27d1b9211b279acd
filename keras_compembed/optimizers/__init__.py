"""Optimizers for large tables."""

from keras_compembed.optimizers.sparse_row_optimizer import SparseRowOptimizer

__all__ = ["SparseRowOptimizer"]
