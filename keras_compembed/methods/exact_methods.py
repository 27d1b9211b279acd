"""Methods that hold a table of many zeros or few numbers as it is."""

import numpy as np

from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.pruned import Pruned

# Subcodes of 1, 2, 4 and 8 bits.
_SIZES = (2, 4, 16, 256)
_SAMPLE_ROWS = 256


def exact_methods(table):
    """The methods by which a table gets smaller without loss, best first."""
    found, zeros = [], float(np.mean(table == 0))
    if 0.5 <= zeros < 1:
        found.append(Pruned(zeros))
    if len(np.unique(table[:_SAMPLE_ROWS])) <= _SIZES[-1]:
        number = len(np.unique(table))
        size = next((size for size in _SIZES if size >= number), None)
        if size:
            found.append(Codes(table.shape[1], size, "concat", _FewNumbers))
    sizes = {x: x.litert_bytes(*table.shape) for x in found}
    return sorted(
        (x for x in sizes if sizes[x] < 4 * table.size), key=sizes.get
    )


class _FewNumbers(CodeLearner):
    """Gives each number of a row a subcode, which names it."""

    composition = "concat"

    def __init__(self, num_codebooks, codebook_size):
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size

    def train(self, table, sample_weight=None):
        self._numbers = np.unique(table).astype("float32")
        column = np.resize(self._numbers, (self.codebook_size, 1))
        self.codebooks = np.tile(column, self.num_codebooks)
        self.codes = self.encode(table)
        return self

    def encode(self, table):
        return np.searchsorted(self._numbers, table).astype("uint8")
