"""TT-Rec (Yin et al., 2021, https://arxiv.org/abs/2101.11714).

`E(i)[j] = core_0[i_1, j_1] core_1[i_2, j_2] ... core_(n-1)[i_n, j_n]` for rows
`i = (i_1, ..., i_n)` and columns `j` in grids of factors.
"""

import math

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.stores.store import read_all
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_sample_weight


@keras.saving.register_keras_serializable(package="benchmarks")
class TensorTrainEmbedding(EmbeddingBaseline):
    """Multiplies one small matrix for each digit of an id (TT-Rec)."""

    def __init__(
        self,
        input_dim,
        output_dim,
        rank=16,
        seed=None,
    ):
        super().__init__(input_dim, output_dim, seed)
        self.rank = rank
        self.row_factors = factor_rows(input_dim, 3)
        self.column_factors = factor_columns(output_dim, 3)
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
        sample_weight=None,
        iterations=10,
        seed=None,
        **kwargs,
    ):
        """Fits the cores to a trained table, by TT-SVD."""
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        store = cls(*table.shape, rank, seed)
        cores = fit_tensor_train(
            np.asarray(table, "float32"),
            store.row_factors,
            store.column_factors,
            store.ranks,
            weight,
            iterations,
        )
        layer = store.in_layer(**kwargs)
        for core, values in zip(store.cores, cores, strict=True):
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

    def compose(self, ids, read):
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
        return {**super().get_config(), "rank": self.rank}


def factor_rows(size, number):
    """Balanced factors, whose product is at least `size`."""
    factors = []
    for left in range(number, 0, -1):
        factor = math.ceil(size ** (1 / left) - 1e-9)
        factors.append(factor)
        size = -(-size // factor)
    return tuple(sorted(factors, reverse=True))


def factor_columns(size, number):
    """Factors whose product is `size`, the largest as small as can be."""
    return min(_factors(size, number), key=lambda found: found[::-1])


def _factors(size, number):
    """Yields all ascending factors."""
    if number == 1:
        yield (size,)
        return
    for first in range(1, size + 1):
        if first**number > size:
            return
        if size % first == 0:
            for others in _factors(size // first, number - 1):
                if first <= others[0]:
                    yield (first, *others)


def digits(ids, factors):
    """Places of ids in a grid, in the order of a C array."""
    found = []
    for factor in factors[:0:-1]:
        found.append(ids % factor)
        ids = ids // factor
    return [ids, *found[::-1]]


def fit_tensor_train(
    table, row_factors, column_factors, ranks, weight, iterations
):
    """Cores whose train is near a table."""
    ids, columns = table.shape
    shapes = row_factors, column_factors, ranks
    room = int(np.prod(row_factors))
    if weight is None and room == ids:
        return _decompose(table, *shapes)
    parts = np.zeros((room, 1), "float32")
    parts[:ids, 0] = 1 if weight is None else weight / weight.max()
    wanted = np.zeros((room, columns), "float32")
    wanted[:ids] = table
    filled = wanted
    for _ in range(iterations):
        cores = _decompose(filled, *shapes)
        rows = _compose(cores, *shapes)
        filled = rows + parts * (wanted - rows)
    return cores


def _decompose(table, row_factors, column_factors, ranks):
    """TT-SVD, with the eigenvectors of small squares in place of an SVD."""
    number = len(row_factors)
    grid = table.reshape(*row_factors, *column_factors)
    order = [axis for k in range(number) for axis in (k, number + k)]
    rest = grid.transpose(order)
    cores = []
    for k in range(number - 1):
        size = ranks[k] * row_factors[k] * column_factors[k]
        rest = rest.reshape(size, -1)
        vectors = _leading(rest, ranks[k + 1])
        cores.append(vectors)
        rest = vectors.T @ rest
    cores.append(rest)
    return [
        np.ascontiguousarray(
            core.reshape(ranks[k], row_factors[k], -1)
            .transpose(1, 0, 2)
            .reshape(row_factors[k], -1),
            "float32",
        )
        for k, core in enumerate(_balanced(cores))
    ]


def _leading(matrix, rank):
    """Left singular vectors `(rows, rank)` of the largest values."""
    if matrix.shape[0] > matrix.shape[1]:
        return np.linalg.svd(matrix, full_matrices=False)[0][:, :rank]
    square = matrix.astype("float64")
    _, vectors = np.linalg.eigh(square @ square.T)
    return vectors[:, ::-1][:, :rank].astype("float32")


def _balanced(cores):
    """Cores of the same product, with numbers of the same size."""
    sizes = [np.sqrt(np.mean(core.astype("float64") ** 2)) for core in cores]
    if not min(sizes) > 0:
        return cores
    mean = np.exp(np.mean(np.log(sizes)))
    return [
        core * (mean / size) for core, size in zip(cores, sizes, strict=True)
    ]


def _compose(cores, row_factors, column_factors, ranks):
    """All rows of a train."""
    rows = np.ones((1, 1, 1), "float32")
    for k, core in enumerate(cores):
        core = core.reshape(
            row_factors[k], ranks[k], column_factors[k], ranks[k + 1]
        )
        ids, columns, _ = rows.shape
        rows = np.einsum("ida,racb->irdcb", rows, core, optimize=True)
        rows = rows.reshape(
            ids * row_factors[k], columns * column_factors[k], ranks[k + 1]
        )
    return rows[:, :, 0]
