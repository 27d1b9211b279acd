"""Base class of learners of codes, and checks that they share."""

import abc

from keras_compembed.codes.codeword_sums import decode_codes
from keras_compembed.codes.packing import check_codes
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import require


class CodeLearner(abc.ABC):
    """Base class of learners: `train` on a table, then `encode`, `decode`."""

    num_codebooks = None
    codebook_size = None
    composition = "sum"
    # Of the composition's `codebooks_shape`.
    codebooks = None
    # Of the table trained on.
    codes = None

    @abc.abstractmethod
    def train(self, table, sample_weight=None):
        """Learns codebooks for `table`, and its codes.

        Ctrl-C before there is anything to keep raises `KeyboardInterrupt`,
        and leaves the learner as it was.

        Args:
            table: Array `(rows, columns)` of finite numbers. It is read a
                part at a time and may be memory-mapped.
            sample_weight: Optional array `(rows,)`, how much each row counts.
                Losses are then weighted means.

        Raises:
            ValueError: if the table's largest number is not from 1e-12 to
                1e12 (or 0), or an array is not as above.
        """

    @abc.abstractmethod
    def encode(self, table):
        """Codes, unsigned `(rows, num_codebooks)`, of rows that may be new.

        Args:
            table: Array `(rows, columns)` as wide as the table trained on.
        """

    def decode(self, codes):
        """Rows, float32 `(rows, columns)`, that `codes` stand for."""
        self._check_trained()
        if isinstance(self.composition, str):
            return decode_codes(codes, self.codebooks)
        shape = None, self.num_codebooks
        codes = check_codes(codes, self.codebook_size, shape)
        return self.composition.decode(codes, self.codebooks)

    def _keep(self, **state):
        """Sets attributes at once: Ctrl-C comes before or after all."""
        vars(self).update(state)

    def _check_new_rows(self, table):
        """Returns a table to encode, or raises if it cannot be."""
        self._check_trained()
        width = self.codebooks.shape[-1]
        if not isinstance(self.composition, str):
            width = self.composition.output_dim
        return check_fitted_table(
            table, width, smallest=0, shards=True, warn=False
        )

    def _check_trained(self):
        require(
            self.codebooks is not None,
            "The learner has no codebooks yet: call `train` first.",
            codebooks=None,
        )
