"""Vectors as products of features of ids and a matrix."""

import abc


class RowProducts(abc.ABC):
    """What is added up and multiplied once where vectors meet a layer."""

    # `columns` of features, `width` of vectors, `num_numbers` of the matrix and
    # `num_bytes` of rows in a file are attributes.
    can_fold = True
    can_spread = True

    @abc.abstractmethod
    def rows(self, ids, kernel):
        """Vectors of a rank-1 tensor of ids, times a matrix."""

    @abc.abstractmethod
    def spread(self, ids):
        """Features `(texts, length, columns)` of each of some ids."""

    @abc.abstractmethod
    def sums(self, ids, counts=None, weights=None, mean=False):
        """Features `(texts, columns)` of sums of vectors."""

    def folds_faster(self, width, sums=False, length=None):
        """Whether vectors times a matrix are made faster by folding it."""
        return self.columns * width < (self.columns + width) * self.width

    def may_sum(self, length):
        """Whether to add up texts of so many ids, or None if that is open."""
        return True

    def fold(self, kernel=None):
        """The matrix `(columns, width)`, if any, times another one."""
        return self._matrix if kernel is None else self._matrix @ kernel
