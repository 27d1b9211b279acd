"""Embedding whose rows are integers of few bits."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.read_rows import without_gradients
from keras_compembed.rounding.latent_rows import LatentRows
from keras_compembed.rounding.round_factors import rank_of_energy
from keras_compembed.rounding.round_factors import round_factors
from keras_compembed.rounding.round_factors import round_onto
from keras_compembed.rounding.round_rows import check_room
from keras_compembed.rounding.round_rows import round_rows
from keras_compembed.rounding.round_rows import warn_if_coarse
from keras_compembed.rounding.rounded_rows import RoundedRows
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import packed_width
from keras_compembed.utils.each_once import each_once
from keras_compembed.utils.top_rows import top_rows
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import float_chunks

# Of random rows: the numbers of `keras.initializers.RandomUniform`.
_RANDOM_SIZE = 0.05


@keras.saving.register_keras_serializable(package="keras_compembed")
class QuantizedEmbedding(LookupLayer):
    """Turns non-negative integers into rows of 8, 4 or 2 bits a number.

    Drop-in replacement of `keras.layers.Embedding`. Each number of a row is
    an integer, times a scale that it shares with its row, or with a block of
    its row:

    `E(id) = integers[id] * scales[id] * scale_unit`

    Scales are integers too, in units of one float for the layer. Integers are
    packed in memory, in `.keras` files and in LiteRT files alike, and only
    those of the ids looked up are unpacked. With `rank`, rows are narrow, and
    multiplied by a matrix: `E(id) @ projection`.

    Rows usually come from a trained table, through `from_table` or
    `keras_compembed.compression.compress_model`. They are then fixed, while
    `projection` is trained like any weight. With `learn_rows`, `fit` trains
    latent float rows as well, which each call rounds; their gradients are
    those of rows that are not rounded. A row's scales then follow its latent
    row, and `scale_unit` grows where a row outgrows it. `kc.strip`
    drops the latent rows when done.

    The table also gives logits: `layer(vectors, reverse=True)`, or
    `vectors @ transpose(layer.embeddings)` in a layer of your own.
    `ReversibleQuantizedEmbedding` has the options of
    `keras.layers.ReversibleEmbedding` besides.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> layer = QuantizedEmbedding.from_table(table, bits=4, verbose=0)
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    >>> model.predict(np.array([[4, 20, 7]]), verbose=0).shape
    (1, 3, 64)

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        bits: `8`, `4` or `2`. Bits of a number. Defaults to `8`.
        block_size: Optional integer, at most the width of rows. How many
            numbers of a row share a scale. Defaults to `None`: all.
        rank: Optional integer, at most `output_dim`. The width of rows that
            are multiplied by a matrix. Defaults to `None`: rows are vectors.
        scale_dtype: `"int8"` or `"int16"`. Of the scales. `"int16"` is for
            tables whose rows differ a hundredfold in length. Defaults to
            `"int8"`.
        learn_rows: Boolean. Whether `fit` trains rows. Defaults to `False`.
        rows_initializer: Initializer of rows that are trained. Others are
            random integers. Defaults to `"uniform"`.
        projection_initializer: Initializer of the matrix. Defaults to
            `"glorot_uniform"`.
        projection_regularizer: Optional regularizer of the matrix.
        mask_zero: Boolean. Whether id 0 is padding to be masked, as in
            `keras.layers.Embedding`. Defaults to `False`.
        seed: Optional integer. Seed of random integers.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Attributes:
        width: Integer, numbers of a row: `rank`, or `output_dim`.
        num_blocks: Integer, scales of a row.
        packed_rows: uint8 weight `(input_dim, bytes)`. Each number is a field
            of `bits` bits, a two's complement, the first in the lowest bits.
        scales: Integer weight `(input_dim, num_blocks)`, at least 0.
        scale_unit: float32 weight `()`.
        projection: Float weight `(rank, output_dim)`, or None.
        latent_rows: Float weight `(input_dim, width)` while rows are trained.
            `packed_rows` and `scales` then wait for `kc.strip`.

    Call arguments:
        inputs: Integer tensor of ids, see `CodeEmbedding`. With `reverse`, a
            float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table,
            which gives a logit for each id. Defaults to `False`.
        training: Boolean. Matters only while rows are trained.

    Input shape:
        Integer tensor of any shape, usually `(batch_size, input_length)`;
        with `reverse`, float tensor `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with `reverse`,
        `(..., input_dim)`. Both are computed in the variable dtype, or
        float32 if that is wider. At the end vectors are cast to the compute
        dtype, and logits to the dtype of a product with `embeddings`.

    Raises:
        ValueError: if an argument is of a wrong kind or out of range.

    References:
        - [Bengio, Leonard & Courville, 2013](
          https://arxiv.org/abs/1308.3432), gradients straight through
        - [May et al., 2019](https://arxiv.org/abs/1909.01264), rounded word
          vectors against others of the same bytes
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
        projection_initializer="glorot_uniform",
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
        self._latents = None

    @property
    def width(self):
        return self.rank or self.output_dim

    @property
    def num_blocks(self):
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
        """Rounds a trained table and returns a layer holding it.

        Scales are searched for those that lose least. With `rank`, the table
        is factored by its singular values, and rounded rows and projection
        are fit to it in turns.

        Args:
            table: Array of shape `(input_dim, output_dim)`.
            bits: `8`, `4` or `2`. Defaults to `8`.
            block_size: Optional integer, see the layer.
            rank: Optional integer, see the layer, or a float between 0 and 1:
                the least rank that keeps this share of the table's sum of
                squares.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, e.g. how often its token occurs. Only a factored table
                depends on it.
            seed: Optional integer.
            verbose: `0` or `1`, whether to say how much was lost.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `QuantizedEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix of numbers up to
                1e12, or the layer refuses an argument.
        """
        table = check_fitted_table(table, shards=True, warn=False)
        sample_weight = check_sample_weight(sample_weight, len(table))
        if isinstance(rank, float) and 0 < rank < 1:
            # What the layer refuses it shall refuse before.
            options = {**kwargs, "name": "arguments"}
            cls(1, table.shape[1], bits, block_size, **options)
            rank = rank_of_energy(table, rank, sample_weight)
        layer = cls(*table.shape, bits, block_size, rank, seed=seed, **kwargs)
        layer.build()
        layer._round_table(table, sample_weight, seed, verbose)
        return layer

    def _round_table(self, table, sample_weight, seed, verbose):
        """Sets the weights to those that give a table."""
        shape = self.bits, self.block_size, self.scale_dtype
        if self.rank is None:
            rounded, latents = round_rows(table, *shape), table
        else:
            factors = round_factors(
                table, self.rank, *shape, sample_weight, seed
            )
            rounded, latents = factors.rows, factors.latents
            self.projection.assign(factors.projection)
        warn_if_coarse(latents, rounded)
        self._rows.assign(rounded)
        if self._latents is not None:
            self._latents.assign(latents)
        if verbose:
            print(f"relative squared error {self._error(table):.3g}")

    def _error(self, table):
        error = energy = 0.0
        for start, rows in float_chunks(table):
            rest = rows - self.embed(tf.range(start, start + len(rows)))
            error += np.sum(np.square(rest), dtype="float64")
            energy += np.sum(np.square(rows), dtype="float64")
        return error / energy if energy else 0.0

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
        if self.learn_rows:
            self.latent_rows = self.add_weight(
                shape=(self.input_dim, self.width),
                initializer=self.rows_initializer,
                autocast=False,
                name="latent_rows",
            )
        self.scale_unit = self.add_weight(
            shape=(),
            initializer=self._initialize_unit,
            dtype="float32",
            trainable=False,
            autocast=False,
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
        if self.learn_rows:
            # Files of the layer have it.
            self.rows_are_fixed = self.add_weight(
                shape=(),
                initializer="zeros",
                # What shows or sums up all weights takes no booleans.
                dtype="uint8",
                trainable=False,
                name="rows_are_fixed",
            )
        self._make_parts()
        self.built = True

    def _make_parts(self):
        """What reads rows, of the weights that there are."""
        block_size = self.block_size or self.width
        self._rows = RoundedRows(
            self.packed_rows,
            self.scales,
            self.scale_unit,
            self.width,
            self.bits,
            block_size,
        )
        if self.learn_rows:
            self._latents = LatentRows(
                self.latent_rows,
                self.scale_unit,
                self.bits,
                block_size,
                self.scale_dtype,
            )

    def _initialize_rows(self, shape, dtype=None):
        seed = random.getrandbits(32) if self.seed is None else self.seed
        rng = np.random.default_rng(seed)
        return tf.convert_to_tensor(
            rng.integers(256, size=shape, dtype="uint8")
        )

    def _initialize_unit(self, shape, dtype=None):
        largest = _RANDOM_SIZE / 2 ** (self.bits - 1)
        if self.learn_rows:
            # At least what each row needs.
            _, highest = integer_range(self.bits)
            latents = tf.convert_to_tensor(self.latent_rows.value)
            largest = tf.reduce_max(tf.abs(latents)) / highest
        return tf.cast(largest, dtype) / np.iinfo(self.scale_dtype).max

    def call(self, inputs, reverse=False, training=False):
        if reverse:
            if self._learns(training):
                self._make_room()
            return self.logits(inputs)
        embed = self._learn if self._learns(training) else self.embed
        return self._set_mask(self.look_up(inputs, embed), inputs)

    def _learns(self, training):
        """Whether rows are learned in a call."""
        return training and self.trainable and self._latents is not None

    def _make_room(self):
        """Makes the unit large enough for all scales."""
        self._latents.grow()

    def _learn(self, ids):
        """`embed` in a training step, in which rows are learned."""
        return self._project(self._latents.read(ids, training=True))

    @property
    def _current(self):
        """What rows are read from."""
        return self._latents or self._rows

    def embed(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        if self._latents is not None:
            # Which finds the different ids of all devices.
            return self._project(self._latents.read(ids))
        return each_once(lambda ids: self._project(self._rows.read(ids)), ids)

    def embed_all(self):
        """The table `(input_dim, output_dim)`, made for the moment."""
        return self._project(self._current.read_all())

    def sum_rows(self, ids, weights):
        """Weighted sums of rows, which meet the projection once."""
        return self._project(self._current.sum_rows(ids, weights))

    def _project(self, rows):
        """Vectors of rows, in a dtype that holds both."""
        dtype = keras.backend.result_type(rows.dtype, self._dtype_of_sums)
        rows = tf.cast(rows, dtype)
        if self.projection is None:
            return rows
        return tf.matmul(rows, tf.cast(self.projection.value, dtype))

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        return tf.cast(
            self._current.score(self._project_back(vectors)), vectors.dtype
        )

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""

        def make_score(part):
            narrow = self._project_back(part)

            def score(ids):
                # Devices cannot wait for each other in a loop.
                with without_gradients():
                    rows = tf.cast(self._current.read(ids), narrow.dtype)
                scores = tf.matmul(narrow, rows, transpose_b=True)
                return tf.cast(scores, part.dtype)

            return score

        return top_rows(vectors, k, self.input_dim, make_score)

    def _project_back(self, vectors):
        """What products of vectors with rows are those with the table of."""
        dtype = keras.backend.result_type(vectors.dtype, self._dtype_of_sums)
        vectors = tf.cast(vectors, dtype)
        if self.projection is None:
            return vectors
        projection = tf.cast(self.projection.value, dtype)
        return tf.matmul(vectors, projection, transpose_b=True)

    def integers(self, ids):
        """Integers of rows, int8 `(ids, width)`, of a rank-1 tensor of ids."""
        self._require_built("integers")
        return self._current.integers(ids)

    def numpy_integers(self):
        """Integers of all rows, an int8 array `(input_dim, width)`."""
        self._require_built("numpy_integers")
        return self.rounded_table().integers

    def rounded_table(self):
        """All rows as arrays, a `RoundedTable`.

        While rows are learned, those that `kc.strip` would fix.
        """
        self._require_built("rounded_table")
        return self._current.table()

    def _stripped(self):
        """A layer with the rows learned, fixed."""
        new = self._again(learn_rows=False)
        new.build()
        new._rows.assign(self.rounded_table())
        if self.rank is not None:
            new.projection.assign(self.projection)
        return new

    def _grown(self, vectors):
        """A layer with ids for further vectors."""
        shape = self.bits, self.block_size, self.scale_dtype
        unit = keras.ops.convert_to_numpy(self.scale_unit)[()]
        if self.rank is None:
            rounded, latents = round_rows(vectors, *shape, unit), vectors
        else:
            projection = keras.ops.convert_to_numpy(self.projection)
            projection = projection.astype("float32")
            factors = round_onto(vectors, projection, *shape, unit)
            rounded, latents = factors.rows, factors.latents
        check_room(latents, *shape, unit)
        warn_if_coarse(latents, rounded)
        new = self._again(input_dim=self.input_dim + len(vectors))
        new.build()
        added = {
            "packed_rows": pack_integers(rounded.integers, self.bits),
            "scales": rounded.scales,
        }
        if self.learn_rows:
            added["latent_rows"] = latents
        for name, rows in added.items():
            own = keras.ops.convert_to_numpy(getattr(self, name))
            rows = np.concatenate([own, rows.astype(own.dtype)])
            getattr(new, name).assign(rows)
        new.scale_unit.assign(self.scale_unit)
        if self.rank is not None:
            new.projection.assign(self.projection)
        return new

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
