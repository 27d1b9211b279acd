"""word2ketXS (Panahi et al., 2020, https://arxiv.org/abs/1911.04975).

`E(i) = sum_r factor_0[i_1, r] (x) ... (x) factor_(n-1)[i_n, r]`
"""

import keras
import tensorflow as tf

from benchmarks.baselines.embedding_baseline import EmbeddingBaseline
from benchmarks.baselines.tensor_train_embedding import digits
from benchmarks.baselines.tensor_train_embedding import factor_columns
from benchmarks.baselines.tensor_train_embedding import factor_rows
from keras_compembed.stores.store import read_all


@keras.saving.register_keras_serializable(package="benchmarks")
class Word2KetEmbedding(EmbeddingBaseline):
    """Multiplies a short vector for each digit of an id (word2ketXS)."""

    def __init__(
        self,
        input_dim,
        output_dim,
        order=2,
        rank=8,
        seed=None,
    ):
        super().__init__(input_dim, output_dim, seed)
        self.order = order
        self.rank = rank
        self.row_factors = factor_rows(input_dim, order)
        self.column_factors = factor_columns(output_dim, order)

    @property
    def shapes(self):
        return {
            f"factor_{k}": (rows, self.rank * columns)
            for k, (rows, columns) in enumerate(
                zip(self.row_factors, self.column_factors, strict=True)
            )
        }

    @property
    def factors(self):
        return [getattr(self, name) for name in self.shapes]

    def initializers(self):
        # The variance of a sum of products of independent numbers.
        variance = self.INITIAL_STDDEV**2 / self.rank
        stddev = variance ** (0.5 / self.order)
        return {
            name: keras.initializers.RandomNormal(stddev=stddev, seed=seed)
            for name, seed in zip(
                self.shapes, self.seeds(self.order), strict=True
            )
        }

    def compose(self, ids, read):
        *before, last = (
            # Factors are small, and most batches read all of them.
            tf.reshape(read_all(self.factors[k], places), (-1, self.rank, size))
            for k, (places, size) in enumerate(
                zip(
                    digits(self.known(ids), self.row_factors),
                    self.column_factors,
                    strict=True,
                )
            )
        )
        left = before[0]
        for factor in before[1:]:
            size = left.shape[2] * factor.shape[2]
            product = tf.expand_dims(left, 3) * tf.expand_dims(factor, 2)
            left = tf.reshape(product, (-1, self.rank, size))
        vectors = tf.matmul(left, last, transpose_a=True)
        return tf.reshape(vectors, (-1, self.output_dim))

    def get_config(self):
        return {
            **super().get_config(),
            "order": self.order,
            "rank": self.rank,
        }
