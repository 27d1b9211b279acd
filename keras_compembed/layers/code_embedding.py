"""Embedding whose table is stored as discrete codes."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.additive_quantizer import AdditiveQuantizer
from keras_compembed.codes.code_learner import check_code_shape
from keras_compembed.codes.code_learner import decode_codes
from keras_compembed.codes.lookup import sum_codewords
from keras_compembed.codes.lookup import unpack_rows
from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import check_codes
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table

COMPOSITIONS = ("sum",)


@keras.saving.register_keras_serializable(package="keras_compembed")
class CodeEmbedding(keras.layers.Layer):
    """Turns non-negative integers into vectors composed from codewords.

    Drop-in replacement of `keras.layers.Embedding`. Each id has a code of
    `num_codebooks` subcodes, each from 0 to `codebook_size - 1`; its vector is
    the sum of the codewords that its subcodes name, one from each codebook:

    `E(id) = sum_m codebooks[m, codes[id, m]]`

    A row takes `num_codebooks * ceil(log2(codebook_size))` bits instead of
    `32 * output_dim`. Codes are fixed; codebooks are trained like any weight
    (set `trainable=False` to freeze them). Codes are packed in memory, in
    `.keras` files and in LiteRT files alike, and only those of the ids looked
    up are unpacked.

    Codes usually come from a trained table, through `from_table` or
    `keras_compembed.compress_model`. Without `codes`, each id gets a random
    code.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> layer = CodeEmbedding.from_table(
    ...     table, num_codebooks=8, codebook_size=16, verbose=0
    ... )
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    >>> model.predict(np.array([[4, 20, 7]]), verbose=0).shape
    (1, 3, 64)

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_codebooks: Integer. Subcodes an id (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords a codebook (K).
            Powers of two waste no bits. Defaults to `16`.
        composition: String. How codewords become a vector. Only `"sum"`.
            Defaults to `"sum"`.
        codes: Optional integer array of shape `(input_dim, num_codebooks)`.
            Defaults to `None`: random codes.
        codebooks: Optional array of shape
            `(num_codebooks, codebook_size, output_dim)`. Defaults to `None`:
            `codebooks_initializer` fills them.
        codebooks_initializer: Initializer of the codebooks. Defaults to
            `"uniform"`.
        codebooks_regularizer: Optional regularizer of the codebooks.
        codebooks_constraint: Optional constraint of the codebooks.
        mask_zero: Boolean. Whether id 0 is padding to be masked, as in
            `keras.layers.Embedding`. Defaults to `False`.
        seed: Optional integer. Seed of random codes.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`. Eager and
            graph look-ups on CPU raise an error for other ids, as
            `keras.layers.Embedding` does, and so does LiteRT; XLA and GPU
            clamp them or give zeros.

    Input shape:
        Integer tensor of any shape, usually `(batch_size, input_length)`.

    Output shape:
        The input's shape followed by `output_dim`. Sums are taken in the
        variable dtype and cast to the compute dtype at the end.

    Raises:
        ValueError: if a size is out of range, `composition` is unknown,
            `codes` or `codebooks` has the wrong shape, a subcode is not below
            `codebook_size`, or a codeword is not finite.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), equation 1
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_codebooks=32,
        codebook_size=16,
        composition="sum",
        codes=None,
        codebooks=None,
        codebooks_initializer="uniform",
        codebooks_regularizer=None,
        codebooks_constraint=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        input_dim = check_positive_int("input_dim", input_dim)
        output_dim = check_positive_int("output_dim", output_dim)
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        check_choice("composition", composition, COMPOSITIONS)
        if codes is not None:
            codes = check_codes(
                codes, codebook_size, shape=(input_dim, num_codebooks)
            )
        if codebooks is not None:
            codebooks = _check_codebooks(
                codebooks, (num_codebooks, codebook_size, output_dim)
            )
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.composition = composition
        self.codebooks_initializer = keras.initializers.get(
            codebooks_initializer
        )
        self.codebooks_regularizer = keras.regularizers.get(
            codebooks_regularizer
        )
        self.codebooks_constraint = keras.constraints.get(codebooks_constraint)
        self.mask_zero = mask_zero
        self.seed = seed
        self.supports_masking = mask_zero
        self.autocast = False
        self._initial_codes = codes
        if codes is not None or codebooks is not None:
            self.build()
        if codebooks is not None:
            self.codebooks.assign(codebooks)
        self._initial_codes = None

    @classmethod
    def from_table(
        cls,
        table,
        num_codebooks=32,
        codebook_size=16,
        learner=None,
        sample_weight=None,
        seed=None,
        verbose=1,
        **kwargs,
    ):
        """Learns codes for a trained table and returns a layer holding them.

        Args:
            table: Array of shape `(input_dim, output_dim)`.
            num_codebooks: Integer. Defaults to `32`.
            codebook_size: Integer. Defaults to `16`.
            learner: Optional `CodeLearner` of the same `num_codebooks` and
                `codebook_size`. Defaults to an `AdditiveQuantizer`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, e.g. how often its token occurs.
            seed: Optional integer, seed of the default learner.
            verbose: `0` or `1`, whether the default learner shows progress.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `CodeEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or the learner has
                another code shape.
        """
        table = check_table(table)
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        if learner is None:
            learner = AdditiveQuantizer(
                num_codebooks, codebook_size, seed=seed, verbose=verbose
            )
        got = (learner.num_codebooks, learner.codebook_size)
        if got != (num_codebooks, codebook_size):
            raise ValueError(
                "`learner` must have the layer's `num_codebooks` and "
                f"`codebook_size`, {(num_codebooks, codebook_size)}. "
                f"Received: a learner with {got}."
            )
        learner.train(table, sample_weight=sample_weight)
        return cls(
            *table.shape,
            num_codebooks=num_codebooks,
            codebook_size=codebook_size,
            codes=learner.codes,
            codebooks=learner.codebooks,
            **kwargs,
        )

    def build(self, input_shape=None):
        if self.built:
            return
        self.packed_codes = self.add_weight(
            shape=(
                self.input_dim,
                bytes_per_row(self.num_codebooks, self.codebook_size),
            ),
            initializer=self._initialize_codes,
            dtype="uint8",
            trainable=False,
            name="packed_codes",
        )
        self.codebooks = self.add_weight(
            shape=(self.num_codebooks, self.codebook_size, self.output_dim),
            initializer=self.codebooks_initializer,
            regularizer=self.codebooks_regularizer,
            constraint=self.codebooks_constraint,
            autocast=False,
            name="codebooks",
        )
        self.built = True

    def _initialize_codes(self, shape, dtype=None):
        codes = self._initial_codes
        if codes is None:
            seed = random.getrandbits(32) if self.seed is None else self.seed
            codes = np.random.default_rng(seed).integers(
                self.codebook_size,
                size=(self.input_dim, self.num_codebooks),
                dtype="uint16",
            )
        return tf.convert_to_tensor(pack_codes(codes, self.codebook_size))

    def call(self, inputs):
        ids = tf.convert_to_tensor(inputs)
        if ids.dtype not in (tf.int32, tf.int64):
            ids = tf.cast(ids, tf.int32)
        vectors = self.embed(tf.reshape(ids, (-1,)))
        vectors = tf.cast(vectors, self.compute_dtype)
        shape = tf.concat([tf.shape(ids), [self.output_dim]], axis=0)
        vectors = tf.reshape(vectors, shape)
        vectors.set_shape((*ids.shape, self.output_dim))
        return vectors

    def embed(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        rows = tf.gather(self.packed_codes.value, ids)
        subcodes = unpack_rows(rows, self.num_codebooks, self.codebook_size)
        return sum_codewords(
            tf.convert_to_tensor(self.codebooks.value), subcodes
        )

    def compute_mask(self, inputs, mask=None):
        if not self.mask_zero:
            return None
        return keras.ops.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    @property
    def codes(self):
        """Codes as an array `(input_dim, num_codebooks)`, uint8 or uint16."""
        self._require_built("codes")
        return unpack_codes(
            keras.ops.convert_to_numpy(self.packed_codes),
            self.num_codebooks,
            self.codebook_size,
        )

    @property
    def embeddings(self):
        """The whole table as a float32 array `(input_dim, output_dim)`."""
        self._require_built("embeddings")
        return decode_codes(
            self.codes, keras.ops.convert_to_numpy(self.codebooks)
        )

    def _require_built(self, name):
        if not self.built:
            raise AttributeError(
                f"You must build the layer before accessing `{name}`."
            )

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "input_dim": self.input_dim,
                "output_dim": self.output_dim,
                "num_codebooks": self.num_codebooks,
                "codebook_size": self.codebook_size,
                "composition": self.composition,
                "codebooks_initializer": keras.initializers.serialize(
                    self.codebooks_initializer
                ),
                "codebooks_regularizer": keras.regularizers.serialize(
                    self.codebooks_regularizer
                ),
                "codebooks_constraint": keras.constraints.serialize(
                    self.codebooks_constraint
                ),
                "mask_zero": self.mask_zero,
                "seed": self.seed,
            }
        )
        return config


def _check_codebooks(codebooks, shape):
    codebooks = np.asarray(codebooks)
    if codebooks.shape != shape:
        raise ValueError(
            "`codebooks` must have shape (num_codebooks, codebook_size, "
            f"output_dim), {shape}. "
            f"Received: an array of shape {codebooks.shape}."
        )
    flat = check_table(codebooks.reshape(-1, shape[-1]), name="codebooks")
    return flat.reshape(shape)
