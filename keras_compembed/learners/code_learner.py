"""Base class of learners of codes, and checks that they share."""

import abc

from keras_compembed.codes.codeword_sums import decode_codes
from keras_compembed.utils.validation import check_fitted_table


class CodeLearner(abc.ABC):
    """Base class of learners: `train` on a table, then `encode` and `decode`.

    A learner works on plain arrays and knows no layers and no files.

    Attributes:
        num_codebooks: Integer, subcodes per row (M).
        codebook_size: Integer, codewords per codebook (K).
        composition: Name of how codewords become a row, or a `Composition`.
        codebooks: float32 array `(num_codebooks, codebook_size, columns)`, or
            of the composition's `codebooks_shape`; None before `train`.
        codes: Unsigned integer array `(rows, num_codebooks)` of the table
            trained on, or None before `train`.
        history: Dict of lists, one entry an iteration. `"loss"` is the
            reconstruction loss: the mean over rows of the squared distance
            between a row and its reconstruction (equation 3 of
            [Shu & Nakayama](https://arxiv.org/abs/1711.01068)).
    """

    num_codebooks = None
    codebook_size = None
    composition = "sum"
    codebooks = None
    codes = None

    @abc.abstractmethod
    def train(self, table, sample_weight=None):
        """Learns codebooks for `table`, and its codes; returns the learner."""

    @abc.abstractmethod
    def encode(self, table):
        """Codes, `(rows, num_codebooks)`, of rows that may be new."""

    def decode(self, codes):
        """Rows, float32 `(rows, columns)`, that `codes` stand for."""
        self._check_trained()
        return decode_codes(codes, self.codebooks)

    def _keep(self, **state):
        """Sets attributes at once: Ctrl-C comes before or after all."""
        vars(self).update(state)

    def _check_new_rows(self, table):
        """Returns a table to encode, or raises if it cannot be."""
        self._check_trained()
        width = self.codebooks.shape[-1]
        return check_fitted_table(
            table, width, smallest=0, shards=True, warn=False
        )

    def _check_trained(self):
        if self.codebooks is None:
            raise ValueError(
                "The learner has no codebooks yet: call `train` first."
            )
