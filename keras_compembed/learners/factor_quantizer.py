"""Codes of narrow rows, and the matrix that makes them wide."""

import numpy as np

from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.refinement import refine_composed
from keras_compembed.utils.one_thread import one_thread
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import float_chunks


class FactorQuantizer(CodeLearner):
    """Learns codes of a factor of a table, for composition `"linear"`.

    The table is first projected onto its largest axes, a singular value
    decomposition of rank `rank`. An `AdditiveQuantizer` codes the narrow rows;
    then codes, codebooks and the matrix that makes them wide again are fitted
    to the table in turn. Narrow codebooks take `rank / columns` of the bytes,
    which counts where tables have few rows, or files few bytes.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> learner = FactorQuantizer(
    ...     num_codebooks=8, codebook_size=16, rank=16, seed=0, verbose=0
    ... )
    >>> learner.train(table).codebooks.shape
    (8, 16, 16)
    >>> learner.decode(learner.codes).shape
    (1000, 64)

    Args:
        num_codebooks: Integer. Subcodes per row (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        rank: Integer, the width of codewords. Tables must have as many
            columns at least. Defaults to `16`.
        effort: Same as in `AdditiveQuantizer`. Defaults to `1.0`.
        max_time: Same as in `AdditiveQuantizer`, for the narrow rows.
            Defaults to `None`.
        seed: Optional integer. Makes `train` and `encode` repeatable.
        verbose: `0` or `1`, whether to show progress. Defaults to `1`.

    Attributes:
        history: Dict of lists. `"loss"` and `"seconds"` are those of the
            `AdditiveQuantizer` on narrow rows; `"refined_loss"` is the mean
            squared distance of a row of the table, after each fit but the
            last.

    Raises:
        ValueError: if a size or the seed is out of range, or `effort` or
            `max_time` is not a positive number.

    References:
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464), section
          2.2 (the composition)
    """

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        rank=16,
        effort=1.0,
        max_time=None,
        seed=None,
        verbose=1,
    ):
        self._quantizer = AdditiveQuantizer(
            num_codebooks,
            codebook_size,
            effort=effort,
            max_time=max_time,
            seed=seed,
            verbose=verbose,
        )
        self.num_codebooks = self._quantizer.num_codebooks
        self.codebook_size = self._quantizer.codebook_size
        self.rank = check_positive_int("rank", rank)
        self.composition = LinearComposition(self.rank)
        self.history = {"loss": [], "seconds": [], "refined_loss": []}

    def train(self, table, sample_weight=None):
        """Learns codebooks and matrix for `table`, and its codes.

        Ctrl-C stops early: the best found so far is kept, and `train` returns
        as usual. Before there is anything to keep, it goes through.

        Args:
            table: Array `(rows, columns)` of finite numbers. It is read a
                part at a time and may be memory-mapped.
            sample_weight: Optional array `(rows,)`, how much each row counts.

        Returns:
            The learner.

        Raises:
            ValueError: if the table is not a finite matrix, has fewer columns
                than `rank`, its largest number is not from 1e-12 to 1e12 (or
                0), or `sample_weight` is not a non-negative number per row.
        """
        table = check_fitted_table(table, shards=True)
        width = table.shape[1]
        if self.rank > width:
            raise ValueError(
                "`rank` must be at most the number of columns. Received: "
                f"rank={self.rank} and a table of shape {table.shape}."
            )
        weight = check_sample_weight(sample_weight, len(table))
        kernel = _largest_axes(table, weight)[: self.rank]
        narrow = np.empty((len(table), self.rank), "float32")
        for start, rows in float_chunks(table):
            narrow[start : start + len(rows)] = rows @ kernel.T
        quantizer = self._quantizer.train(narrow, sample_weight=weight)
        composition = LinearComposition(self.rank)
        composition.set_shape(self.num_codebooks, self.codebook_size, width)
        composition.kernel.assign(kernel)
        found, losses = (quantizer.codes, quantizer.codebooks, [kernel]), []
        try:
            with one_thread():
                for *better, loss in refine_composed(
                    table,
                    quantizer.codes,
                    composition,
                    quantizer.codebooks,
                    weight,
                ):
                    found = better
                    losses.append(loss)
        except KeyboardInterrupt:
            print("\nInterrupted: the last whole sweep is kept.")
        codes, codebooks, weights = found
        composition.set_weights(weights)
        self._keep(
            codes=codes,
            codebooks=codebooks,
            composition=composition,
            history={**quantizer.history, "refined_loss": losses},
        )
        return self

    def encode(self, table):
        """Codes of rows that may be new, for the codebooks as they are.

        Args:
            table: Array `(rows, columns)` as wide as the table trained on.

        Returns:
            Unsigned integer array `(rows, num_codebooks)`.

        Raises:
            ValueError: if there are no codebooks yet, or the table is not a
                finite matrix of their width.
        """
        self._check_trained()
        width = self.composition.output_dim
        table = check_fitted_table(
            table, width, smallest=0, shards=True, warn=False
        )
        return nearest_composed(table, self.composition, self.codebooks)

    def decode(self, codes):
        self._check_trained()
        return self.composition.decode(codes, self.codebooks)


def _largest_axes(table, sample_weight):
    """float32 principal axes of rows, as they are, the largest first."""
    moments = np.zeros((table.shape[1],) * 2)
    for start, rows in float_chunks(table):
        weighted = rows
        if sample_weight is not None:
            weighted = rows * sample_weight[start : start + len(rows), None]
        moments += weighted.T @ rows
    return np.linalg.eigh(moments)[1].T[::-1].astype("float32")
