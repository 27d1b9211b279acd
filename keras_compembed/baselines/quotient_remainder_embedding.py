"""Embedding by the quotient and the remainder of ids."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.fit_quotient_remainder import (
    fit_quotient_remainder,
)
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight

OPERATIONS = ("multiply", "add", "concat")


@keras.saving.register_keras_serializable(package="keras_compembed")
class QuotientRemainderEmbedding(EmbeddingBaseline):
    """Joins a row for the quotient of an id and one for its remainder.

    No two ids share both:

    `E(id) = quotients[id // num_remainders] * remainders[id % num_remainders]`

    or the sum of the two rows, or the two side by side.

    Example:

    >>> layer = QuotientRemainderEmbedding(1000, 16, num_remainders=100)
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 16])
    >>> tuple(layer.quotients.shape), tuple(layer.remainders.shape)
    ((10, 16), (100, 16))

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_remainders: Integer, at most `input_dim`. Rows for remainders (m);
            there are `ceil(input_dim / num_remainders)` for quotients.
        operation: `"multiply"`, `"add"` or `"concat"`. How the two rows are
            joined; side by side, each has half of the columns. Defaults to
            `"multiply"`.
        mask_zero: Boolean. Whether id 0 is padding to be masked. Defaults to
            `False`.
        seed: Optional integer. Seed of initial weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table.

    Raises:
        ValueError: if a size is out of range, `operation` is unknown, or
            `output_dim` is 1 with `"concat"`.

    References:
        - [Shi et al., 2019](https://arxiv.org/abs/1909.02107), Algorithm 2
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_remainders,
        operation="multiply",
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        self.num_remainders = check_positive_int(
            "num_remainders", num_remainders, maximum=self.input_dim
        )
        self.operation = check_choice("operation", operation, OPERATIONS)
        if operation == "concat" and output_dim == 1:
            raise ValueError(
                "`output_dim` must be at least 2 with operation='concat'. "
                f"Received: output_dim={output_dim}."
            )

    @classmethod
    def from_table(
        cls,
        table,
        num_remainders,
        operation="multiply",
        sample_weight=None,
        iterations=20,
        verbose=0,
        **kwargs,
    ):
        """Fits both tables to a trained one.

        They are found in turns, each by least squares for the other.

        Args:
            table: Array `(input_dim, output_dim)`.
            num_remainders: Integer.
            operation: Same as in the layer. Defaults to `"multiply"`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts.
            iterations: Integer. Defaults to `20`.
            verbose: `0` or `1`, whether to show progress. Defaults to `0`.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `QuotientRemainderEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        iterations = check_positive_int("iterations", iterations)
        layer = cls(*table.shape, num_remainders, operation, **kwargs)
        quotients, remainders = fit_quotient_remainder(
            np.asarray(table, "float32"),
            layer.num_remainders,
            operation,
            weight,
            iterations,
            verbose,
        )
        layer.build()
        layer.quotients.assign(quotients)
        layer.remainders.assign(remainders)
        return layer

    @property
    def shapes(self):
        first = second = self.output_dim
        if self.operation == "concat":
            second = self.output_dim // 2
            first -= second
        number = -(-self.input_dim // self.num_remainders)
        return {
            "quotients": (number, first),
            "remainders": (self.num_remainders, second),
        }

    def initializers(self):
        quotients_seed, remainders_seed = self.seeds(2)
        size = 0.05 / 2**0.5 if self.operation == "add" else 0.05
        first = keras.initializers.RandomUniform(-size, size, quotients_seed)
        second = keras.initializers.RandomUniform(-size, size, remainders_seed)

        def signs(shape, dtype=None):
            # Products are as large as the remainders' rows, and learn as fast.
            values = keras.ops.where(first(shape, "float32") < 0, -1.0, 1.0)
            return keras.ops.cast(values, dtype)

        is_product = self.operation == "multiply"
        return {
            "quotients": signs if is_product else first,
            "remainders": second,
        }

    def embed(self, ids, read=read_all):
        ids = self.known(ids)
        quotients = read(self.quotients, ids // self.num_remainders)
        remainders = read(self.remainders, ids % self.num_remainders)
        if self.operation == "multiply":
            return quotients * remainders
        if self.operation == "add":
            return quotients + remainders
        return tf.concat([quotients, remainders], axis=1)

    def get_config(self):
        return {
            **super().get_config(),
            "num_remainders": self.num_remainders,
            "operation": self.operation,
        }
