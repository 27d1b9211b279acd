"""Codes of narrow rows, and the matrix that makes them wide."""

import numpy as np

from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.coordinate_search import second_moments
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.refinement import refine_until_stopped
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require


class FactorQuantizer(CodeLearner):
    """Learns codes of a factor of a table, for composition `"linear"`."""

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        rank=16,
        effort=1.0,
        seed=None,
        verbose=1,
    ):
        self._quantizer = AdditiveQuantizer(
            num_codebooks,
            codebook_size,
            effort=effort,
            seed=seed,
            verbose=verbose,
        )
        self.num_codebooks = self._quantizer.num_codebooks
        self.codebook_size = self._quantizer.codebook_size
        self.rank = check_positive_int("rank", rank)
        self.composition = LinearComposition(self.rank)
        self.history = {"loss": [], "seconds": [], "refined_loss": []}

    def train(self, table, sample_weight=None):
        table = check_fitted_table(table, shards=True)
        width = table.shape[1]
        require(
            self.rank <= width,
            "`rank` must be at most the number of columns.",
            columns=width,
            rank=self.rank,
        )
        weight = check_sample_weight(sample_weight, len(table))
        # The principal axes of rows as they are, the largest first.
        axes = np.linalg.eigh(second_moments(table, 0, weight))[1].T[::-1]
        kernel = axes[: self.rank].astype("float32")
        narrow = np.empty((len(table), self.rank), "float32")
        for start, rows in float_chunks(table):
            narrow[start : start + len(rows)] = rows @ kernel.T
        quantizer = self._quantizer.train(narrow, sample_weight=weight)
        composition = LinearComposition(self.rank)
        composition.set_shape(self.num_codebooks, self.codebook_size, width)
        composition.kernel.assign(kernel)
        codes, codebooks, weights, losses = refine_until_stopped(
            table, quantizer.codes, composition, quantizer.codebooks, weight
        )
        composition.set_weights(weights)
        self._keep(
            codes=codes,
            codebooks=codebooks,
            composition=composition,
            history={**quantizer.history, "refined_loss": losses},
        )
        return self

    def encode(self, table):
        table = self._check_new_rows(table)
        return nearest_composed(table, self.composition, self.codebooks)
