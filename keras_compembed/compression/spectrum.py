"""What ways to store a table lose, estimated from its covariance."""

import numpy as np

from keras_compembed.learners.coordinate_search import level_of_variances
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import float_chunks

# Least share of the loss that codes of ever larger codebooks keep.
_LEAST_SHARE = 0.05


class Spectrum:
    """How the squares of rows about their mean spread over axes."""

    def __init__(self, table, sample_weight=None):
        weight = check_sample_weight(sample_weight, len(table))
        moments = np.zeros((table.shape[1],) * 2)
        total = np.zeros(table.shape[1])
        for start, rows in float_chunks(table):
            weighted = rows
            if weight is not None:
                weighted = rows * weight[start : start + len(rows), None]
            moments += weighted.T @ rows
            total += weighted.sum(axis=0, dtype="float64")
        mean = total / len(table)
        centred = moments / len(table) - np.outer(mean, mean)
        variances = np.maximum(np.linalg.eigvalsh(centred)[::-1], 0)
        # A table of equal rows loses nothing.
        self.variances = variances / max(
            variances.sum(), np.finfo("float64").tiny
        )
        self.num_rows = len(table)
        if weight is not None:
            self.num_rows /= float(np.square(weight, dtype="float64").mean())

    def cut(self, rank):
        """The share of the squares beyond so many axes."""
        return float(self.variances[rank:].sum())

    def coded(self, bits, num_codewords, rank=None):
        """The share of the squares that codes lose."""
        coded = self.variances[:rank]
        level = level_of_variances(coded, bits)
        lost = float(np.minimum(coded, level).sum())
        share = 1 - num_codewords / self.num_rows
        lost *= max(share, _LEAST_SHARE)
        return lost + (0.0 if rank is None else self.cut(rank))
