"""The baseline of Chen, Min & Sun (2018, Table 1), for summed codewords."""

import numpy as np

from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.quantizer_run import visit_block
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed


class RandomCodeLearner(CodeLearner):
    """Gives each row a random code, and fits codebooks to the codes.

    Arguments are those of `AdditiveQuantizer`.
    """

    def __init__(self, num_codebooks=32, codebook_size=16, seed=None):
        self.num_codebooks, self.codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        self.seed = check_seed(seed)
        self.history = {"loss": []}
        self._rng = np.random.default_rng(seed)

    def train(self, table, sample_weight=None):
        table = check_fitted_table(table, shards=True)
        weight = check_sample_weight(sample_weight, len(table))
        codes = self._draw(len(table))
        shape = self.num_codebooks, self.codebook_size, table.shape[1]
        codebooks = np.zeros(shape, "float32")
        offset = search.mean_row(table, weight)
        rows = table, codes, weight
        _, _, sums = visit_block(*rows, codebooks, offset, None, True)
        codebooks = search.least_squares_step(codes, codebooks, sums, weight)
        codebooks[0] += offset
        loss, _, _ = visit_block(*rows, codebooks, np.float32(0), None, False)
        history = {"loss": [loss / len(table)]}
        self._keep(codes=codes, codebooks=codebooks, history=history)
        return self

    def encode(self, table):
        return self._draw(len(self._check_new_rows(table)))

    def _draw(self, num_rows):
        return search.random_codes(
            num_rows, self.num_codebooks, self.codebook_size, self._rng
        )
