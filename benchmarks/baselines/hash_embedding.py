"""Hash embeddings (Svenstrup et al., 2017, https://arxiv.org/abs/1709.03933).

`E(id) = sum_i importances[id, i] * shared_rows[hash_i(id)]`
"""

import random

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_sample_weight

# Products of two numbers below it fit 64 bits.
PRIME = 2**31 - 1


def draw_hashes(number, seed=None):
    """Random functions `(a * id + b) % PRIME`."""
    rng = np.random.default_rng(
        random.getrandbits(32) if seed is None else seed
    )
    return np.stack(
        [rng.integers(1, PRIME, number), rng.integers(PRIME, size=number)]
    )


def hash_ids(ids, hashes, size):
    """Numbers from 0 to `size - 1` for ids, by each of several functions."""
    ids = tf.expand_dims(tf.cast(ids, "int64"), 1)
    values = tf.math.floormod(ids * hashes[0] + hashes[1], PRIME)
    return tf.math.floormod(values, size)


@keras.saving.register_keras_serializable(package="benchmarks")
class HashEmbedding(EmbeddingBaseline):
    """Adds up a few shared rows for each id, weighted by its importances."""

    def __init__(
        self,
        input_dim,
        output_dim,
        num_rows,
        num_hashes=2,
        num_importances=None,
        seed=None,
    ):
        super().__init__(input_dim, output_dim, seed)
        self.num_rows = num_rows
        self.num_hashes = num_hashes
        self.num_importances = num_importances

    @classmethod
    def from_table(
        cls,
        table,
        num_rows,
        num_hashes=2,
        num_importances=None,
        sample_weight=None,
        iterations=10,
        seed=None,
        **kwargs,
    ):
        """Fits shared rows and importances to a trained table."""
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        settings = num_rows, num_hashes, num_importances
        store = cls(*table.shape, *settings, seed)
        layer = store.in_layer(**kwargs)
        ids = tf.range(len(table))
        places, owners = (part.numpy() for part in store.places(ids))
        rows, importances = fit_hash_embedding(
            np.asarray(table, "float32"),
            places,
            owners,
            num_rows,
            keras.ops.convert_to_numpy(store.importances).copy(),
            weight,
            iterations,
        )
        store.shared_rows.assign(rows)
        store.importances.assign(importances)
        return layer

    @property
    def shapes(self):
        owners = self.num_importances or self.input_dim
        return {
            "shared_rows": (self.num_rows, self.output_dim),
            "importances": (owners, self.num_hashes),
        }

    @property
    def integer_shapes(self):
        return {"hashes": (2, self._num_functions)}

    @property
    def _num_functions(self):
        return self.num_hashes + (self.num_importances is not None)

    def initializers(self):
        scale = self.num_hashes**-0.5
        rows_seed, signs_seed, hashes_seed = self.seeds(3)
        uniform = keras.initializers.RandomUniform(seed=signs_seed)

        def signs(shape, dtype=None):
            # Ids that share a row differ from the start.
            values = uniform(shape, dtype="float32")
            values = keras.ops.where(values < 0, -scale, scale)
            return keras.ops.cast(values, dtype)

        return {
            "shared_rows": keras.initializers.RandomUniform(seed=rows_seed),
            "importances": signs,
            "hashes": lambda shape, dtype=None: tf.constant(
                draw_hashes(shape[1], hashes_seed), dtype
            ),
        }

    def places(self, ids):
        """Which shared rows, and which row of importances, ids have."""
        hashes = tf.convert_to_tensor(self.hashes.value)
        number = self.num_hashes
        ids = self.known(ids)
        places = hash_ids(ids, hashes[:, :number], self.num_rows)
        if self.num_importances is None:
            return places, ids
        owners = hash_ids(ids, hashes[:, number:], self.num_importances)
        return places, owners[:, 0]

    def compose(self, ids, read):
        places, owners = self.places(ids)
        rows = read(self.shared_rows, tf.reshape(places, (-1,)))
        rows = tf.reshape(rows, (-1, self.num_hashes, self.output_dim))
        importances = tf.expand_dims(read(self.importances, owners), 2)
        return tf.reduce_sum(rows * importances, axis=1)

    def get_config(self):
        return {
            **super().get_config(),
            "num_rows": self.num_rows,
            "num_hashes": self.num_hashes,
            "num_importances": self.num_importances,
        }


# Steps of conjugate gradients towards the rows of one turn: the next begins
# where these end.
_STEPS = 5


def fit_hash_embedding(
    table, places, owners, num_rows, importances, weight, iterations
):
    """Minimizes the weighted squared error of a `HashEmbedding`."""
    weight = np.ones(len(table), "float32") if weight is None else weight
    importances = np.array(importances, "float32")
    hashes = places.shape[1]
    to_rows = _GroupSums(places.ravel(), num_rows)
    to_owners = _GroupSums(owners, len(importances))
    rows = np.zeros((num_rows, table.shape[1]), "float32")
    for _ in range(iterations):
        own = importances[owners]
        rows = _solve_rows(rows, table, places, own, weight, to_rows)
        picked = rows[places]
        # A system of `hashes` equations for each owner.
        squares = np.einsum("nid,njd,n->nij", picked, picked, weight)
        products = np.einsum("nid,nd,n->ni", picked, table, weight)
        squares = to_owners(squares.reshape(-1, hashes**2))
        squares = squares.reshape(-1, hashes, hashes)
        products = to_owners(products)
        size = np.einsum("nii->n", squares) / hashes
        # What comes before counts a little, so that each has a solution.
        damping = 1e-4 * size + 1e-20
        squares += damping[:, None, None] * np.eye(hashes, dtype="float32")
        products += damping[:, None] * importances
        importances = np.linalg.solve(squares, products[:, :, None])[:, :, 0]
        importances = importances.astype("float32")
    own = importances[owners]
    rows = _solve_rows(rows, table, places, own, weight, to_rows)
    return rows, importances


class _GroupSums:
    """Sums of the rows of an array by group, fast when called repeatedly."""

    def __init__(self, groups, number):
        self._order = np.argsort(groups, kind="stable")
        ordered = np.asarray(groups)[self._order]
        self._found, self._starts = np.unique(ordered, return_index=True)
        self._number = number

    def __call__(self, values):
        sums = np.zeros((self._number, *values.shape[1:]), values.dtype)
        sums[self._found] = np.add.reduceat(
            values[self._order], self._starts, axis=0
        )
        return sums


def _solve_rows(rows, table, places, own, weight, to_rows):
    """Steps of conjugate gradients, scaled by the diagonal."""
    columns = table.shape[1]

    def back(errors):
        errors = (weight[:, None] * own)[:, :, None] * errors[:, None, :]
        return to_rows(errors.reshape(-1, columns))

    def forward(rows):
        return np.einsum("nid,ni->nd", rows[places], own)

    diagonal = to_rows((weight[:, None] * own**2).reshape(-1, 1))
    scale = 1 / np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-30))
    residual = back(table - forward(rows))
    scaled = scale * residual
    direction = scaled
    old = np.sum(residual * scaled, axis=0)
    for _ in range(_STEPS):
        turned = back(forward(direction))
        curvature = np.sum(direction * turned, axis=0)
        # Columns that are solved stay.
        step = np.divide(
            old, curvature, out=np.zeros_like(old), where=curvature > 0
        )
        rows = rows + step * direction
        residual = residual - step * turned
        scaled = scale * residual
        new = np.sum(residual * scaled, axis=0)
        ratio = np.divide(new, old, out=np.zeros_like(old), where=old > 0)
        direction = scaled + ratio * direction
        old = new
    return rows.astype("float32")
