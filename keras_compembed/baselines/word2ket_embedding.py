"""Embedding whose table is a sum of products of small tables."""

import keras
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.factors import digits
from keras_compembed.baselines.tensor_train_embedding import get_factors
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class Word2KetEmbedding(EmbeddingBaseline):
    """Multiplies a short vector for each digit of an id (word2ketXS).

    Rows and columns are factored, and the table is a sum of `rank` tensor
    products of `order` small tables:

    `E(i) = sum_r factor_0[i_1, r] (x) ... (x) factor_(n-1)[i_n, r]`

    It is trained from scratch: no fit of such a sum to a table is both fast
    and sure, see `TensorTrainEmbedding.from_table` for the next best.

    Example:

    >>> layer = Word2KetEmbedding(1000, 16, order=2, rank=4)
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 16])
    >>> [tuple(factor.shape) for factor in layer.factors]
    [(32, 16), (32, 16)]

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        order: Integer of at least 2. Small tables of a product (n). Defaults
            to `2`.
        rank: Integer. Products that are added up (r). Defaults to `8`.
        row_factors: Optional tuple of `order` integers, whose product is at
            least `input_dim`. Defaults to `None`: about equal.
        column_factors: Optional tuple of `order` integers, whose product is
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
        factors: List of Keras variables `(row_factors[k], rank *
            column_factors[k])`.

    Raises:
        ValueError: if a size is out of range, or there are not `order`
            factors, of the product asked for.

    References:
        - [Panahi et al., 2020](https://arxiv.org/abs/1911.04975), word2ketXS
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        order=2,
        rank=8,
        row_factors=None,
        column_factors=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        self.order = check_positive_int("order", order, minimum=2)
        self.rank = check_positive_int("rank", rank)
        self.row_factors, self.column_factors = get_factors(
            row_factors, column_factors, self.input_dim, self.output_dim, order
        )
        for name in ("row_factors", "column_factors"):
            factors = getattr(self, name)
            if len(factors) != self.order:
                raise ValueError(
                    f"`{name}` must be `order`={order} integers. "
                    f"Received: {name}={factors}."
                )

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
        self._require_built("factors")
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

    def embed(self, ids, read=read_all):
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
            "row_factors": self.row_factors,
            "column_factors": self.column_factors,
        }
