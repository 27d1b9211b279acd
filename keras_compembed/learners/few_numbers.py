"""Codes of single numbers, for tables that have few."""

import numpy as np

from keras_compembed.learners.code_learner import CodeLearner


class FewNumbers(CodeLearner):
    """Gives each number of a row a subcode, and loses nothing.

    Args:
        num_codebooks: Integer, columns of the table.
        codebook_size: Integer, at least as many as the table has numbers.
    """

    composition = "concat"

    def __init__(self, num_codebooks, codebook_size):
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.history = {"loss": []}

    def train(self, table, sample_weight=None):
        numbers = np.unique(table).astype("float32")
        padded = np.resize(numbers, (self.codebook_size, 1))
        codebooks = np.tile(padded, self.num_codebooks)
        self._keep(numbers=numbers, codebooks=codebooks)
        self._keep(codes=self.encode(table), history={"loss": [0.0]})
        return self

    def encode(self, table):
        return np.searchsorted(self.numbers, table).astype("uint8")
