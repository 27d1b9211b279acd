"""Embedding whose rows are integers of few bits."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.drop_weights import drop_weights
from keras_compembed.rounding.latent_rows import LatentRows
from keras_compembed.rounding.round_rows import round_rows
from keras_compembed.rounding.rounded_rows import RoundedRows
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import packed_width
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import check_table

# Of random rows: the numbers of `keras.initializers.RandomUniform`.
_RANDOM_SIZE = 0.05


@keras.saving.register_keras_serializable(package="keras_compembed")
class QuantizedEmbedding(LookupLayer):
    """Turns non-negative integers into rows of 8, 4 or 2 bits a number.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> layer = QuantizedEmbedding.from_table(table, bits=4)
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    >>> model.predict(np.array([[4, 20, 7]]), verbose=0).shape
    (1, 3, 64)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        bits=8,
        block_size=None,
        rank=None,
        scale_dtype="int8",
        learn_rows=False,
        rows_initializer="uniform",
        projection_initializer="orthogonal",
        projection_regularizer=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.input_dim = check_positive_int("input_dim", input_dim)
        self.output_dim = check_positive_int("output_dim", output_dim)
        self.bits = check_choice("bits", bits, (8, 4, 2))
        if rank is not None:
            rank = check_positive_int("rank", rank, maximum=self.output_dim)
        self.rank = rank
        if block_size is not None:
            block_size = check_positive_int(
                "block_size", block_size, maximum=self.width
            )
        self.block_size = block_size
        self.scale_dtype = check_choice(
            "scale_dtype", scale_dtype, ("int8", "int16")
        )
        self.learn_rows = check_boolean("learn_rows", learn_rows)
        self.rows_initializer = keras.initializers.get(rows_initializer)
        self.projection_initializer = keras.initializers.get(
            projection_initializer
        )
        self.projection_regularizer = keras.regularizers.get(
            projection_regularizer
        )
        self.mask_zero = check_boolean("mask_zero", mask_zero)
        self.seed = check_seed(seed)
        self.supports_masking = True
        self.autocast = False
        self.projection = None

    @property
    def width(self):
        """Integer, numbers of a row: `rank`, or `output_dim`."""
        return self.rank or self.output_dim

    @property
    def num_blocks(self):
        """Integer, scales of a row."""
        return count_blocks(self.width, self.block_size or self.width)

    @classmethod
    def from_table(
        cls,
        table,
        bits=8,
        block_size=None,
        rank=None,
        sample_weight=None,
        seed=None,
        verbose=1,
        **kwargs,
    ):
        table = check_table(table)
        check_sample_weight(sample_weight, len(table))
        layer = cls(*table.shape, bits, block_size, rank, seed=seed, **kwargs)
        layer.build()
        layer._rows.assign(
            round_rows(table, bits, block_size, layer.scale_dtype)
        )
        return layer

    def build(self, input_shape=None):
        if self.built:
            return
        self.packed_rows = self.add_weight(
            shape=(self.input_dim, packed_width(self.width, self.bits)),
            initializer=self._initialize_rows,
            dtype="uint8",
            trainable=False,
            name="packed_rows",
        )
        self.scales = self.add_weight(
            shape=(self.input_dim, self.num_blocks),
            initializer=lambda shape, dtype: tf.fill(
                shape, tf.constant(np.iinfo(self.scale_dtype).max, dtype)
            ),
            dtype=self.scale_dtype,
            trainable=False,
            name="scales",
        )
        self.scale_unit = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(
                _RANDOM_SIZE
                / 2 ** (self.bits - 1)
                / np.iinfo(self.scale_dtype).max
            ),
            dtype="float32",
            trainable=False,
            name="scale_unit",
        )
        if self.rank is not None:
            self.projection = self.add_weight(
                shape=(self.rank, self.output_dim),
                initializer=self.projection_initializer,
                regularizer=self.projection_regularizer,
                autocast=False,
                name="projection",
            )
        block_size = self.block_size or self.width
        self._rows = RoundedRows(
            self.packed_rows,
            self.scales,
            self.scale_unit,
            self.width,
            self.bits,
            block_size,
        )
        self._latents = None
        if self.learn_rows:
            self.latent_rows = self.add_weight(
                shape=(self.input_dim, self.width),
                initializer=self.rows_initializer,
                autocast=False,
                name="latent_rows",
            )
            self.rows_are_fixed = self.add_weight(
                shape=(),
                initializer="zeros",
                dtype="bool",
                trainable=False,
                name="rows_are_fixed",
            )
            self._latents = LatentRows(
                self.latent_rows,
                self.scale_unit,
                self.rows_are_fixed,
                self.bits,
                block_size,
                self.scale_dtype,
            )
        self.built = True

    def _initialize_rows(self, shape, dtype=None):
        seed = random.getrandbits(32) if self.seed is None else self.seed
        rng = np.random.default_rng(seed)
        return tf.convert_to_tensor(
            rng.integers(256, size=shape, dtype="uint8")
        )

    def call(self, inputs, reverse=False, training=False):
        if reverse:
            return self.logits(inputs)
        embed = self._learn if self._learns(training) else self.embed
        return self._set_mask(self.look_up(inputs, embed), inputs)

    def _learns(self, training):
        """Whether rows are learned in a call."""
        return training and self.trainable and self._latents is not None

    def _learn(self, ids):
        """`embed` in a training step, in which rows are learned."""
        return self._project(self._latents.read(ids, training=True))

    def embed(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        return self._project((self._latents or self._rows).read(ids))

    def _project(self, rows):
        if self.projection is None:
            return rows
        projection = tf.convert_to_tensor(self.projection.value)
        return tf.matmul(rows, tf.cast(projection, rows.dtype))

    def integers(self, ids):
        """Integers of rows, int8 `(ids, width)`, of a rank-1 tensor of ids."""
        self._require_built("integers")
        return (self._latents or self._rows).integers(ids)

    def numpy_integers(self):
        """Integers of all rows, an int8 array `(input_dim, width)`."""
        self._require_built("numpy_integers")
        return self.rounded_table().integers

    def rounded_table(self):
        """The rows as arrays, a `RoundedTable`."""
        return (self._latents or self._rows).table()

    def freeze_rows(self):
        self._require_built("freeze_rows")
        self._rows.assign(self._latents.table())
        self.rows_are_fixed.assign(True)
        drop_weights(self, self._latents.weights)
        self._latents = None
        self.learn_rows = False

    def get_config(self):
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "bits": self.bits,
            "block_size": self.block_size,
            "rank": self.rank,
            "scale_dtype": self.scale_dtype,
            "learn_rows": self.learn_rows,
            "rows_initializer": keras.initializers.serialize(
                self.rows_initializer
            ),
            "projection_initializer": keras.initializers.serialize(
                self.projection_initializer
            ),
            "projection_regularizer": keras.regularizers.serialize(
                self.projection_regularizer
            ),
            "mask_zero": self.mask_zero,
            "seed": self.seed,
        }
