"""Embedding whose ids share rows by several hash functions."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.fit_hash_embedding import fit_hash_embedding
from keras_compembed.baselines.id_hashes import PRIME
from keras_compembed.baselines.id_hashes import draw_hashes
from keras_compembed.baselines.id_hashes import hash_ids
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight


@keras.saving.register_keras_serializable(package="keras_compembed")
class HashEmbedding(EmbeddingBaseline):
    """Adds up a few shared rows for each id, weighted by its importances.

    Hash functions choose `num_hashes` of `num_rows` shared rows for each id,
    so that two ids seldom share all of theirs:

    `E(id) = sum_i importances[id, i] * shared_rows[hash_i(id)]`

    Example:

    >>> layer = HashEmbedding(1000, 16, num_rows=50)
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 16])

    Args:
        input_dim: Integer below 2**31 - 1. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_rows: Integer. Rows that all ids share (B).
        num_hashes: Integer. Rows added up for an id (k). Defaults to `2`.
        num_importances: Optional integer. Ids share so many rows of
            importances, by a hash function of their own. Defaults to `None`:
            each id has its own importances.
        mask_zero: Boolean. Whether id 0 is padding to be masked. Defaults to
            `False`.
        seed: Optional integer. Seed of hash functions and initial weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table.

    Raises:
        ValueError: if a size is out of range.

    References:
        - [Svenstrup et al., 2017](https://arxiv.org/abs/1709.03933), section 2
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_rows,
        num_hashes=2,
        num_importances=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        check_positive_int("input_dim", input_dim, maximum=PRIME - 1)
        self.num_rows = check_positive_int("num_rows", num_rows)
        self.num_hashes = check_positive_int("num_hashes", num_hashes)
        if num_importances is not None:
            num_importances = check_positive_int(
                "num_importances", num_importances
            )
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
        verbose=1,
        **kwargs,
    ):
        """Fits shared rows and importances to a trained table.

        Hash functions are random. Rows and importances are found in turns,
        each by least squares for the others.

        Args:
            table: Array `(input_dim, output_dim)`.
            num_rows: Integer.
            num_hashes: Integer. Defaults to `2`.
            num_importances: Optional integer. Defaults to `None`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts.
            iterations: Integer. Defaults to `10`.
            seed: Optional integer.
            verbose: `0` or `1`, whether to show progress.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `HashEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        iterations = check_positive_int("iterations", iterations)
        layer = cls(
            *table.shape,
            num_rows,
            num_hashes,
            num_importances,
            seed=seed,
            **kwargs,
        )
        layer.build()
        ids = tf.range(len(table))
        places, owners = (part.numpy() for part in layer.places(ids))
        rows, importances = fit_hash_embedding(
            np.asarray(table, "float32"),
            places,
            owners,
            layer.num_rows,
            keras.ops.convert_to_numpy(layer.importances).copy(),
            weight,
            iterations,
            verbose,
        )
        layer.shared_rows.assign(rows)
        layer.importances.assign(importances)
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
        """Which shared rows, and which row of importances, ids have.

        Args:
            ids: Integer tensor `(ids,)`.

        Returns:
            Integer tensors `(ids, num_hashes)` and `(ids,)`.
        """
        hashes = tf.convert_to_tensor(self.hashes.value)
        number = self.num_hashes
        ids = self.known(ids)
        places = hash_ids(ids, hashes[:, :number], self.num_rows)
        if self.num_importances is None:
            return places, ids
        owners = hash_ids(ids, hashes[:, number:], self.num_importances)
        return places, owners[:, 0]

    def embed(self, ids, read=read_all):
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
