"""Embedding whose table is a tensor train."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.factors import check_factors
from keras_compembed.baselines.factors import digits
from keras_compembed.baselines.factors import factor_columns
from keras_compembed.baselines.factors import factor_rows
from keras_compembed.baselines.fit_tensor_train import fit_tensor_train
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight


@keras.saving.register_keras_serializable(package="keras_compembed")
class TensorTrainEmbedding(EmbeddingBaseline):
    """Multiplies one small matrix for each digit of an id (TT-Rec).

    Rows and columns are factored, `i = (i_1, ..., i_n)` in a grid of
    `row_factors` and `j` in one of `column_factors`. A number of the table is
    a product of matrices, and only those of the ids looked up are read:

    `E(i)[j] = core_0[i_1, j_1] core_1[i_2, j_2] ... core_(n-1)[i_n, j_n]`

    Example:

    >>> layer = TensorTrainEmbedding(1000, 16, rank=4)
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 16])
    >>> [tuple(core.shape) for core in layer.cores]
    [(10, 8), (10, 32), (10, 16)]

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        rank: Integer, the size of the matrices between two factors. Those that
            no train could use are smaller. Defaults to `16`.
        row_factors: Optional tuple of integers, whose product is at least
            `input_dim`. Defaults to `None`: three, about equal.
        column_factors: Optional tuple of as many integers, whose product is
            `output_dim`. Defaults to `None`: as equal as can be.
        mask_zero: Boolean. Whether id 0 is padding to be masked. Defaults to
            `False`.
        seed: Optional integer. Seed of initial weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table.

    Attributes:
        cores: List of Keras variables, matrices side by side:
            `(row_factors[k], ranks[k] * column_factors[k] * ranks[k + 1])`.
        ranks: Tuple of integers, 1 at both ends.

    Raises:
        ValueError: if a size is out of range, factors have another product, or
            there are not as many of rows as of columns.

    References:
        - [Hrinchuk et al., 2020](https://arxiv.org/abs/1901.10787)
        - [Yin et al., 2021](https://arxiv.org/abs/2101.11714), TT-Rec
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        rank=16,
        row_factors=None,
        column_factors=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        self.rank = check_positive_int("rank", rank)
        self.row_factors, self.column_factors = get_factors(
            row_factors, column_factors, self.input_dim, self.output_dim, 3
        )
        sizes = [
            rows * columns
            for rows, columns in zip(
                self.row_factors, self.column_factors, strict=True
            )
        ]
        inner = (
            min(self.rank, math.prod(sizes[:k]), math.prod(sizes[k:]))
            for k in range(1, len(sizes))
        )
        self.ranks = (1, *inner, 1)

    @classmethod
    def from_table(
        cls,
        table,
        rank=16,
        row_factors=None,
        column_factors=None,
        sample_weight=None,
        iterations=10,
        verbose=1,
        **kwargs,
    ):
        """Fits the cores to a trained table, by TT-SVD.

        Args:
            table: Array `(input_dim, output_dim)`.
            rank: Integer. Defaults to `16`.
            row_factors: Same as in the layer.
            column_factors: Same as in the layer.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts. Rows that count less than the most are then replaced
                in part by what the train before gave, again and again.
            iterations: Integer, trains with `sample_weight`, or where factors
                have room for more ids than there are. Defaults to `10`.
            verbose: `0` or `1`, whether to show progress.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `TensorTrainEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.

        References:
            - Oseledets, 2011, Tensor-train decomposition, Algorithm 1
            - Srebro & Jaakkola, 2003, Weighted low-rank approximations,
              section 3 (`sample_weight`)
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        iterations = check_positive_int("iterations", iterations)
        layer = cls(*table.shape, rank, row_factors, column_factors, **kwargs)
        cores = fit_tensor_train(
            np.asarray(table, "float32"),
            layer.row_factors,
            layer.column_factors,
            layer.ranks,
            weight,
            iterations,
            verbose,
        )
        layer.build()
        for core, values in zip(layer.cores, cores, strict=True):
            core.assign(values)
        return layer

    @property
    def shapes(self):
        return {
            f"core_{k}": (rows, self.ranks[k] * columns * self.ranks[k + 1])
            for k, (rows, columns) in enumerate(
                zip(self.row_factors, self.column_factors, strict=True)
            )
        }

    @property
    def cores(self):
        self._require_built("cores")
        return [getattr(self, name) for name in self.shapes]

    def initializers(self):
        # The variance of a sum of products of independent numbers.
        variance = self.INITIAL_STDDEV**2 / math.prod(self.ranks)
        stddev = variance ** (0.5 / len(self.row_factors))
        return {
            name: keras.initializers.RandomNormal(stddev=stddev, seed=seed)
            for name, seed in zip(
                self.shapes, self.seeds(len(self.shapes)), strict=True
            )
        }

    def embed(self, ids, read=read_all):
        left = None
        for k, places in enumerate(digits(self.known(ids), self.row_factors)):
            # Cores are small, and most batches read all of them.
            core = read_all(self.cores[k], places)
            rank, columns, after = (
                self.ranks[k],
                self.column_factors[k],
                self.ranks[k + 1],
            )
            if left is not None:
                core = tf.reshape(core, (-1, rank, columns * after))
                core = tf.matmul(left, core)
            done = math.prod(self.column_factors[: k + 1])
            left = tf.reshape(core, (-1, done, after))
        return tf.reshape(left, (-1, self.output_dim))

    def get_config(self):
        return {
            **super().get_config(),
            "rank": self.rank,
            "row_factors": self.row_factors,
            "column_factors": self.column_factors,
        }


def get_factors(row_factors, column_factors, input_dim, output_dim, number):
    """Factors of rows and of columns, as many of the ones as of the others."""
    if row_factors is not None:
        row_factors = check_factors(
            "row_factors", row_factors, "input_dim", input_dim, exact=False
        )
        number = len(row_factors)
    if column_factors is not None:
        column_factors = check_factors(
            "column_factors", column_factors, "output_dim", output_dim, True
        )
        if row_factors is not None and number != len(column_factors):
            raise ValueError(
                "`column_factors` must be as many as `row_factors`. Received: "
                f"row_factors={row_factors}, column_factors={column_factors}."
            )
        number = len(column_factors)
    return (
        row_factors or factor_rows(input_dim, number),
        column_factors or factor_columns(output_dim, number),
    )
