"""The quotient-remainder trick (https://arxiv.org/abs/1909.02107).

`E(id) = quotients[id // num_remainders] * remainders[id % num_remainders]`, or
the sum of the two rows, or the two side by side.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_sample_weight


@keras.saving.register_keras_serializable(package="benchmarks")
class QuotientRemainderEmbedding(EmbeddingBaseline):
    """Joins a row for the quotient of an id and one for its remainder."""

    def __init__(
        self,
        input_dim,
        output_dim,
        num_remainders,
        operation="multiply",
        seed=None,
    ):
        super().__init__(input_dim, output_dim, seed)
        self.num_remainders = num_remainders
        self.operation = operation

    @classmethod
    def from_table(
        cls,
        table,
        num_remainders,
        operation="multiply",
        sample_weight=None,
        iterations=20,
        seed=None,
        **kwargs,
    ):
        """Fits both tables to a trained one."""
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        store = cls(*table.shape, num_remainders, operation, seed)
        quotients, remainders = fit_quotient_remainder(
            np.asarray(table, "float32"),
            num_remainders,
            operation,
            weight,
            iterations,
        )
        layer = store.in_layer(**kwargs)
        store.quotients.assign(quotients)
        store.remainders.assign(remainders)
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

    def compose(self, ids, read):
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


def fit_quotient_remainder(
    table, num_remainders, operation, weight, iterations
):
    """Minimizes the weighted squared error of the two tables joined."""
    ids, columns = table.shape
    number = -(-ids // num_remainders)
    weight = np.ones(ids, "float32") if weight is None else weight
    # Ids beyond the last do not count.
    grid = np.zeros((number * num_remainders, columns), "float32")
    grid[:ids] = table
    grid = grid.reshape(number, num_remainders, columns)
    counts = np.zeros(number * num_remainders, "float32")
    counts[:ids] = weight
    counts = counts.reshape(number, num_remainders, 1)
    if operation == "concat":
        first = columns - columns // 2
        return (
            _mean(grid[:, :, :first], counts, 1),
            _mean(grid[:, :, first:], counts, 0),
        )
    fit = _mean_of_rest if operation == "add" else _ratio
    quotients = np.zeros((number, columns), "float32")
    if operation == "multiply":
        signs = np.random.default_rng(0).integers(2, size=quotients.shape)
        quotients = (2.0 * signs - 1).astype("float32")
    for _ in range(iterations):
        remainders = fit(grid, counts, quotients[:, None], 0)
        quotients = fit(grid, counts, remainders[None], 1)
    if operation == "multiply":
        size = np.sqrt(np.mean(quotients**2, axis=0))
        size = np.where(size > 0, size, 1).astype("float32")
        quotients, remainders = quotients / size, remainders * size
    return quotients, remainders


def _mean(grid, counts, axis):
    total = np.sum(counts, axis=axis)
    sums = np.sum(counts * grid, axis=axis)
    return np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)


def _mean_of_rest(grid, counts, other, axis):
    return _mean(grid - other, counts, axis)


def _ratio(grid, counts, other, axis):
    products = np.sum(counts * grid * other, axis=axis)
    squares = np.sum(counts * other**2, axis=axis)
    return np.divide(
        products, squares, out=np.zeros_like(products), where=squares > 0
    )
