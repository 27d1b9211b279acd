"""Embedding whose table is stored as discrete codes."""

import functools
import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.code_scores import CodeScores
from keras_compembed.codes.coded_rows import CodedRows
from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import check_codes
from keras_compembed.codes.packing import pack_codes
from keras_compembed.compositions.registry import get_composition
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.learners.following_codes import FollowingCodes
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.registry import get_learner
from keras_compembed.learners.registry import get_task_codes
from keras_compembed.utils.each_once import each_once
from keras_compembed.utils.shared_parts import freeze_part
from keras_compembed.utils.top_rows import top_rows
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class CodeEmbedding(LookupLayer):
    """Turns non-negative integers into vectors composed from codewords.

    Drop-in replacement of `keras.layers.Embedding`. Each id has a code of
    `num_codebooks` subcodes, each from 0 to `codebook_size - 1`; its vector is
    composed from the codewords that its subcodes name, one from each
    codebook. By default it is their sum:

    `E(id) = sum_m codebooks[m, codes[id, m]]`

    A row takes `num_codebooks * ceil(log2(codebook_size))` bits instead of
    `32 * output_dim`. Codes are packed in memory, in `.keras` files and in
    LiteRT files alike, and only those of the ids looked up are unpacked.

    Codes usually come from a trained table, through `from_table` or
    `keras_compembed.compression.compress_model`. They are then fixed, while
    codebooks are trained like any weight (set `trainable=False` to freeze
    them). Without `codes`, each id gets a random code.

    With `learn_codes`, codes are learned by `fit` along with everything else,
    from a table of queries that only training needs: `"softmax"` scores each
    part of an id's query against keys by dot products and takes the best,
    backward as if by a softmax; `"nearest"` takes the nearest key, and with
    composition `"concat"` codewords are the keys. A training step touches the
    queries of its own ids only. `"follow"` starts from codes and lets them
    follow the task, see `RecodeEmbeddings`. `kc.strip` drops the queries when
    done.

    The table also gives logits: `layer(vectors, reverse=True)`, or
    `vectors @ transpose(layer.embeddings)` in a layer of your own. Both train
    codebooks and composition, while codes learn from look-ups alone.
    `ReversibleCodeEmbedding` has the options of
    `keras.layers.ReversibleEmbedding` besides.

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
        num_codebooks: Integer. Subcodes per id (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Powers of two waste no bits. Defaults to `16`.
        composition: `"sum"`, `"concat"`, `"linear"`, `"lstm"` or a
            `Composition`. How codewords become a vector. Defaults to `"sum"`.
        codes: Optional integer array of shape `(input_dim, num_codebooks)`.
            Defaults to `None`: random codes.
        codebooks: Optional array of the codebooks' shape, which is
            `(num_codebooks, codebook_size, code_dim)`, or, side by side,
            `(codebook_size, output_dim)` for composition `"concat"`. Defaults
            to `None`: `codebooks_initializer` fills them.
        codebooks_initializer: Initializer of the codebooks. Defaults to
            `"uniform"`.
        codebooks_regularizer: Optional regularizer of the codebooks.
        codebooks_constraint: Optional constraint of the codebooks.
        mask_zero: Boolean. Whether id 0 is padding to be masked, as in
            `keras.layers.Embedding`. Defaults to `False`.
        learn_codes: `None`, `"softmax"`, `"nearest"`, `"follow"` or a
            `keras_compembed.learners.SoftmaxCodes`. How codes are learned
            during training. Defaults to `None`: they are fixed.
        seed: Optional integer. Seed of random codes.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Attributes:
        learn_codes: The layer's own copy of such an object, or None once
            codes are fixed.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`, which may be
            ragged or sparse, as for `keras.layers.Embedding`. Eager and graph
            look-ups on CPU raise an error for other ids, -1 too, and so does
            LiteRT; XLA and GPU clamp them or give zeros. With `reverse`, a
            float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table,
            which gives a logit for each id. Defaults to `False`.
        training: Boolean. Matters only while codes are learned. A layer with
            `trainable=False` learns none, as `BatchNormalization` then keeps
            its statistics.

    Input shape:
        Integer tensor of any shape, usually `(batch_size, input_length)`;
        with `reverse`, float tensor `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with `reverse`,
        `(..., input_dim)`. Both are computed in the variable dtype. At the end
        vectors are cast to the compute dtype, and logits to the dtype of a
        product with `embeddings`. A reverse call of more than `output_dim`
        vectors, with a composition that is not linear, or while codes are
        learned, composes the whole table for a while.

    Raises:
        ValueError: if an argument is unknown or out of range, an array has
            the wrong shape, or `codes` are given and learned from nothing.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), equation 1
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464)
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
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
        learn_codes=None,
        seed=None,
        **kwargs,
    ):
        input_dim = check_positive_int("input_dim", input_dim)
        output_dim = check_positive_int("output_dim", output_dim)
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        learn_codes = get_task_codes(learn_codes)
        if codes is not None:
            require(
                learn_codes is None or learn_codes.starts_from_codes,
                "`codes` must not be given with a `learn_codes` that learns "
                "them from nothing.",
                learn_codes=type(learn_codes).__name__,
            )
            codes = check_codes(
                codes, codebook_size, shape=(input_dim, num_codebooks)
            )
        mask_zero = check_boolean("mask_zero", mask_zero)
        seed = check_seed(seed)
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.composition = get_composition(
            composition,
            num_codebooks,
            codebook_size,
            output_dim,
            dtype=self.variable_dtype,
        )
        freeze_part(self, self.composition)
        if codebooks is not None:
            codebooks = _check_codebooks(
                codebooks, self.composition.codebooks_shape
            )
        self.codebooks_initializer = keras.initializers.get(
            codebooks_initializer
        )
        self.codebooks_regularizer = keras.regularizers.get(
            codebooks_regularizer
        )
        self.codebooks_constraint = keras.constraints.get(codebooks_constraint)
        self.mask_zero = mask_zero
        if learn_codes is not None:
            learn_codes.set_shape(input_dim, self.composition)
        self.learn_codes = learn_codes
        self.seed = seed
        self.supports_masking = True
        self.autocast = False
        self._initial_codes = codes
        self._start(codebooks)

    def _start(self, codebooks):
        """Builds the layer if it is given what weights begin with."""
        learn_codes = self.learn_codes
        starts_from_codes = learn_codes and learn_codes.starts_from_codes
        given = self._initial_codes is not None or codebooks is not None
        if given or starts_from_codes:
            # Not in a graph, where weights cannot begin with others' values.
            self.build()
        if codebooks is not None:
            self.codebooks.assign(codebooks)
            if starts_from_codes:
                learn_codes.restart(self._rows.decode(self.codes))
        self._initial_codes = None

    @classmethod
    def from_table(
        cls,
        table,
        num_codebooks=32,
        codebook_size=16,
        composition=None,
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
            composition: Optional composition, see the layer. Defaults to
                `None`: the learner's, or `"sum"`.
            learner: Optional `CodeLearner` of the same `num_codebooks`,
                `codebook_size` and `composition`. Defaults to an
                `AdditiveQuantizer` for `"sum"` and a `KDCodeLearner` for
                other compositions.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, e.g. how often its token occurs.
            seed: Optional integer, seed of the default learner.
            verbose: `0` or `1`, whether the default learner shows progress.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `CodeEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix, or the learner
                has another code shape or composition.
        """
        table = check_table(table, shards=True)
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        learn_codes = get_task_codes(kwargs.pop("learn_codes", None))
        require(
            learn_codes is None or learn_codes.starts_from_codes,
            "`learn_codes` must be None or 'follow' in `from_table`.",
            learn_codes=type(learn_codes).__name__,
        )
        shape = num_codebooks, codebook_size
        learner = get_learner(
            learner, composition, *shape, seed=seed, verbose=verbose
        )
        if learn_codes is not None:
            learn_codes.check_teacher(*table.shape)
        # What the layer refuses it shall refuse before codes are learned.
        cls(
            1,
            table.shape[1],
            *shape,
            composition=learner.composition,
            learn_codes=learn_codes and learn_codes.without_teacher(),
            **{**kwargs, "name": "arguments"},
        )
        learner.train(table, sample_weight=sample_weight)
        layer = cls(
            *table.shape,
            *shape,
            composition=learner.composition,
            codes=learner.codes,
            codebooks=learner.codebooks,
            learn_codes=learn_codes,
            **kwargs,
        )
        if isinstance(learner.composition, keras.layers.Layer):
            layer.composition.set_weights(learner.composition.get_weights())
        if learn_codes is not None:
            layer.learn_codes.restart(table)
        return layer

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
            shape=self.composition.codebooks_shape,
            initializer=self.codebooks_initializer,
            regularizer=self.codebooks_regularizer,
            constraint=self.codebooks_constraint,
            autocast=False,
            name="codebooks",
        )
        if self.learn_codes is not None:
            self.learn_codes.build(self._add_learning_weight, self._rows)
        self.built = True

    @property
    def _rows(self):
        # Made anew: other codebooks and codes may be put in their places.
        return CodedRows(self.packed_codes, self.codebooks, self.composition)

    def _add_learning_weight(self, name, **kwargs):
        weight = self.add_weight(name=name, autocast=False, **kwargs)
        # Checkpoints of TensorFlow hold what is an attribute.
        setattr(self, name, weight)
        return weight

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

    def call(self, inputs, reverse=False, training=False):
        if reverse:
            return self.logits(inputs)
        vectors = self.look_up(
            inputs, self._learn if self._learns(training) else self.embed
        )
        return self._set_mask(vectors, inputs)

    def _learns(self, training):
        """Whether codes are learned in a call."""
        return training and self.trainable and self.learn_codes is not None

    def embed(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        subcodes = (self.learn_codes or self._rows).subcodes
        return each_once(lambda ids: self._rows.compose(subcodes(ids)), ids)

    def sum_rows(self, ids, weights):
        """Weighted sums of vectors, in which no vector is composed."""
        # Weights are added up for each codeword, and the sums multiplied by
        # the codebooks once, where the composition is linear.
        if not self._rows.sums_by_counts(ids.shape[1]):
            return super().sum_rows(ids, weights)
        subcodes = (self.learn_codes or self._rows).subcodes
        return self._rows.sum_rows(subcodes(tf.reshape(ids, (-1,))), weights)

    def _learn(self, ids):
        """`embed` in a training step, in which codes are learned."""
        mask = tf.not_equal(ids, 0) if self.mask_zero else None
        vectors, losses = self.learn_codes.step(ids, mask)
        for loss in losses:
            self.add_replica_loss(loss)
        return vectors

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""

        def from_codes():
            codes, tables = self._score_codes(vectors)
            return tf.cast(codes.score(tables), vectors.dtype)

        return self._choose(
            vectors,
            from_codes,
            lambda: super(CodeEmbedding, self).score(vectors),
        )

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""

        def from_codes(part):
            codes, tables = self._score_codes(part)
            return lambda ids: tf.cast(
                codes.score_rows(tables, ids), part.dtype
            )

        return self._choose(
            vectors,
            lambda: top_rows(vectors, k, self.input_dim, from_codes),
            lambda: super(CodeEmbedding, self).top_ids(vectors, k),
        )

    def _choose(self, vectors, from_codes, from_rows):
        """Runs what takes less time for so many vectors."""
        if self.learn_codes is not None or not self.composition.is_linear:
            return from_rows()
        count = vectors.shape[0]
        if count is None:
            is_few = tf.shape(vectors)[0] <= self.output_dim
            return tf.cond(is_few, from_codes, from_rows)
        return from_codes() if count <= self.output_dim else from_rows()

    def _score_codes(self, vectors):
        """`CodeScores` of the layer, and their tables for some vectors."""
        codes = CodeScores(
            tf.convert_to_tensor(self.packed_codes.value),
            self.num_codebooks,
            self.codebook_size,
        )
        codebooks = self.composition.fold(
            tf.convert_to_tensor(self.codebooks.value)
        )
        # Sums of 16 bits would lose what products keep.
        dtype = "float64" if codebooks.dtype == "float64" else "float32"
        vectors = tf.cast(vectors, dtype)
        return codes, codes.tables(tf.cast(codebooks, dtype), vectors)

    def embed_all(self):
        """The table `(input_dim, output_dim)`, composed for the moment."""
        subcodes = self._rows.subcodes
        if self.learn_codes is not None:
            learned = self.learn_codes.all_subcodes()
            subcodes = functools.partial(tf.gather, learned)
        return self._rows.compose_all(subcodes)

    @property
    def codes(self):
        """Codes as an array `(input_dim, num_codebooks)`, uint8 or uint16.

        While codes are learned, those that `kc.strip` would fix.
        """
        self._require_built("codes")
        return (self.learn_codes or self._rows).codes

    def _stripped(self):
        """A layer with the codes learned, fixed."""
        if isinstance(self.learn_codes, FollowingCodes):
            self.learn_codes.warn_if_idle()
        return self._filled(self._again(learn_codes=None), self.codes)

    def _grown(self, vectors):
        """A layer with ids for further vectors."""
        learns = self.learn_codes
        follows = isinstance(learns, FollowingCodes)
        require(
            learns is None or (follows and learns.teacher is None),
            "Codes that grow must be fixed, see `kc.strip`, or follow the task "
            "without a teacher.",
            layer=self.name,
            learn_codes=type(learns).__name__,
        )
        require(
            self.composition.is_linear,
            "Codes that grow must have a linear composition.",
            layer=self.name,
            composition=self.composition,
        )
        found = nearest_composed(
            vectors,
            self.composition,
            keras.ops.convert_to_numpy(self.codebooks).astype("float32"),
        )
        rows = self._rows.codes
        new = self._again(input_dim=self.input_dim + len(vectors))
        self._filled(new, np.concatenate([rows, found.astype(rows.dtype)]))
        if follows:
            new.learn_codes.restart(
                np.concatenate([learns.latents.numpy(), vectors])
            )
        return new

    def _filled(self, new, codes):
        """Gives a layer codes, and the codebooks of this one."""
        new.build()
        new.packed_codes.assign(pack_codes(codes, self.codebook_size))
        new.codebooks.assign(self.codebooks)
        new.composition.set_weights(self.composition.get_weights())
        return new

    def recode(self):
        """Gives each id the code nearest its latent vector.

        For layers with `learn_codes="follow"`, see `RecodeEmbeddings`.

        Returns:
            Integer, the ids whose codes changed.

        Raises:
            ValueError: if the layer has another `learn_codes`.
        """
        require(
            isinstance(self.learn_codes, FollowingCodes),
            "`recode` must be called on a layer with learn_codes='follow'.",
            layer=self.name,
            learn_codes=self.learn_codes,
        )
        self._require_built("recode")
        return self.learn_codes.recode()

    def reset_codebooks(self):
        """Starts codebooks and composition afresh; codes stay as they are.

        To train them with a task from scratch, as Chen, Min & Sun do. Latent
        vectors, and queries whose keys are codewords, follow.
        """
        self._require_built("reset_codebooks")
        codes = self.codes
        self.codebooks.assign(
            self.codebooks_initializer(
                self.codebooks.shape, dtype=self.codebooks.dtype
            )
        )
        fresh = get_composition(
            self.composition,
            self.num_codebooks,
            self.codebook_size,
            self.output_dim,
            dtype=self.variable_dtype,
        )
        self.composition.set_weights(fresh.get_weights())
        if self.learn_codes is not None:
            self.learn_codes.restart(self._rows.decode(codes))

    def get_config(self):
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
            "composition": keras.saving.serialize_keras_object(
                self.composition
            ),
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
            "learn_codes": self.learn_codes
            and keras.saving.serialize_keras_object(self.learn_codes),
            "seed": self.seed,
        }


def _check_codebooks(codebooks, shape):
    """Returns an array of codewords, or raises if it is none."""
    codebooks = np.asarray(codebooks)
    require(
        codebooks.shape == shape,
        f"`codebooks` must have shape {shape}.",
        got=codebooks.shape,
    )
    flat = check_table(codebooks.reshape(-1, shape[-1]), name="codebooks")
    return flat.reshape(shape)
