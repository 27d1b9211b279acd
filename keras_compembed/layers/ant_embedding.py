"""Embedding composed from a few anchors by a sparse transform."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.dynamic import Dynamic
from keras_compembed.anchors.mixed import Mixed
from keras_compembed.anchors.registry import get_anchor_initializer
from keras_compembed.layers.ant_arguments import STORAGES
from keras_compembed.layers.ant_arguments import check_arguments
from keras_compembed.layers.ant_arguments import check_use_of_relations
from keras_compembed.layers.ant_arguments import choose_storage
from keras_compembed.layers.ant_weights import ANTWeights
from keras_compembed.layers.lookup_layer import unflatten
from keras_compembed.optimizers.read_rows import unique_ids
from keras_compembed.transforms.activations import activate
from keras_compembed.transforms.fixed_rows import FixedRows
from keras_compembed.transforms.free_entries import FreeEntries
from keras_compembed.transforms.sparse_coding import learn_dictionary
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import check_table


@keras.saving.register_keras_serializable(package="keras_compembed")
class ANTEmbedding(ANTWeights):
    """Turns non-negative integers into sparse combinations of anchors.

    Drop-in replacement of `keras.layers.Embedding` by the method Anchor &
    Transform. The table is a product: `E = T A`, of a few anchor embeddings
    A, `(num_anchors, output_dim)`, and a transform T, `(input_dim,
    num_anchors)`, of which training makes most numbers exactly 0. Only rows
    of T that are looked up are multiplied. What is to be stored is A and the
    non-zeros of T.

    **Training** is plain `fit` with any optimizer: after each of its steps
    that moves T comes the proximal step for the loss `l1 * sum |T|`, which a
    regularizer cannot replace: gradients of `|T|` give small numbers, not
    zeros. So it does in a `train_step` or a loop of your own that calls
    `optimizer.apply`. Then call `sparsify`, or
    `keras_compembed.export.export_litert`, which stores rows sparse in either
    case.

    To learn T for given anchors (appendix B of the paper), build the layer
    and set `layer.anchors.trainable = False` before `compile`.

    **Storage** of T while it is trained:

    - `"dense"` shrinks the whole of T after each step: the algorithm of the
      paper. A step's time grows with `input_dim * num_anchors`.
    - `"lazy"` touches the rows of the batch. Each row remembers when it was
      last shrunk, and what it owes since is taken when it is read, so that
      every reading is as up to date as with `"dense"`. With SGD the two are
      equal. With thresholds that follow coordinates, what a row owes is by
      the mean of its coordinates when it was last looked up: near to
      `"dense"`, not equal. Pass the optimizer through
      `keras_compembed.optimizers.SparseRowOptimizer` for steps whose time does
      not depend on `input_dim`: Keras's own Adam turns to the whole of T. Do so
      too where a model calls the layer more than once: Keras's optimizers
      take the gradients of several look-ups apart.
    - `"sparse"` holds at most `max_nonzeros` numbers a row, so that memory
      does not depend on `num_anchors`. Free places of a row go to the
      anchors with the largest gradient when it is looked up. Where gradients
      of several batches make one step, the first that has the row decides.

    By default, T is dense up to 4 million numbers, lazy up to 100 million
    and sparse beyond.

    **Thresholds.** A step of size eta shrinks by `eta * l1`. Adam and its
    kin have a step size for each coordinate, `learning_rate / (sqrt(v) +
    epsilon)`, and so has the threshold with `threshold="coordinate"`. Then
    an entry stays 0 where the loss's gradient is below `l1`, with whatever
    optimizer. `"learning_rate"` shrinks by `learning_rate * l1` everywhere;
    under Adam that takes an `l1` larger by about 1 / sqrt(v), and it is what
    optimizers do that have one step size for all coordinates (SGD, Lion), or
    do not tell them (Adadelta, Adafactor, Lamb). Coordinates that had no
    gradient yet are left alone, as the optimizer leaves them.

    With many rare ids, try `threshold="learning_rate"`, with `l1` from 0.03 to
    0.3: the v of a rare id fades between its occurrences, so that its
    thresholds under `"coordinate"` grow. On 20 Newsgroups that was worth a
    point of accuracy; on IMDB, none.

    **With a sampled softmax**, look up the classes drawn like any ids:
    `logits = hidden @ transpose(layer(classes))`.

    **Special cases** (appendix D of the paper). Vectors for frequent ids only:
    `Frequency` anchors, `transform_initializer="zeros"`, and `sparsify`
    before training, so that only anchors are trained. A table of low rank:
    `l1=0`, `non_negative=False` and a dense `transform_initializer`. Discrete
    codes: `num_mixtures`, rows with a single 1 in each set through
    `assign_transform`, and `sparsify`.

    Example:

    >>> layer = ANTEmbedding(1000, 64, num_anchors=20, l1=1e-4)
    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((None,), dtype="int32"),
    ...         layer,
    ...         keras.layers.GlobalAveragePooling1D(),
    ...         keras.layers.Dense(1),
    ...     ]
    ... )
    >>> model.compile("adam", "mse")
    >>> ids = np.arange(1000).reshape(100, 10)
    >>> _ = model.fit(ids, ids[:, 0] % 3, epochs=5, verbose=0)
    >>> 0 < layer.density < 0.5
    True

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_anchors: Integer, at most `input_dim`. Rows of A, of all sets
            together. Defaults to `100`.
        anchors_initializer: `"dynamic"` (a random basis), an array of anchors
            to start from, one of `keras_compembed.anchors`, or a list of
            these, for several sets. Objects that are anchors themselves start
            with a row of zeros and a one. Defaults to `"dynamic"`.
        l1: Number of at least 0. Weight of the sum of absolute values of T
            in the loss. May be set later. Defaults to `1e-5`.
        non_negative: Boolean. Whether numbers of T must not be negative, so
            that anchors do not cancel each other out. Defaults to `True`.
        threshold: `"coordinate"` or `"learning_rate"`. Defaults to
            `"coordinate"`.
        storage: `None`, `"dense"`, `"lazy"` or `"sparse"`. Defaults to
            `None`: by the size of T.
        max_nonzeros: Optional integer, for `"sparse"`: room in each row.
            Defaults to `min(16, num_anchors)`.
        num_mixtures: Integer. Number of sets that anchors are divided into;
            for `activation`. Defaults to `1`.
        activation: `None`, `"softmax"`, `"sparsemax"` or `"entmax"`. What
            turns each row of T, set by set, into the weights of anchors.
            Softmax makes every weight positive, though still of few numbers;
            the others give exact zeros. Defaults to `None`.
        relations: Optional `keras_compembed.anchors.Relations` between ids.
            Entries of T for an id and an anchor that stands for a related id
            are not shrunk, and `negative_weight` spares related ids. Anchors
            that stand for ids are those of an initializer such as
            `Frequency`.
        negative_weight: Number of at least 0. Weight of the mean of
            `|t_u| . |t_v|` over pairs of ids of a batch that are not
            related, drawn at random. Defaults to `0.0`.
        orthogonality: Number of at least 0. Weight of the loss
            `sum |a_i . a_j|` of anchors that are not orthogonal. Defaults to
            `0.0`.
        target_nonzeros: Optional integer. Non-zeros of T wanted. `l1`, which
            must then be positive, is only where it begins: every 20 steps it
            is multiplied by the root of `nnz / target_nonzeros`, by 1.5 and
            1 / 1.5 at most. That takes some hundred steps, in which rows must
            have been looked up. `sparsify` drops the smallest numbers of what
            is still too many. Defaults to `None`.
        transform_initializer: Optional initializer of T. Defaults to `None`:
            up to 4 random numbers a row.
        transform_regularizer: Optional regularizer of T.
        anchors_regularizer: Optional regularizer of A.
        anchors_constraint: Optional constraint of A.
        softmax_rows: Optional integer, for `reverse` calls: the gradient of a
            step reaches only so many rows of T, those with the largest
            gradients of logits. Defaults to `None`: all.
        mask_zero: Boolean. Whether id 0 is padding to be masked, as in
            `keras.layers.Embedding`. Defaults to `False`.
        seed: Optional integer. Seed of the random start of T, and of anchors
            that are `"dynamic"`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`, which may be
            ragged or sparse, as for `keras.layers.Embedding`; or, with
            `reverse`, a float tensor of vectors. Masks take floats for ids
            unless the last axis is `output_dim` long.
        reverse: Boolean. Whether to multiply vectors by the transposed table,
            `(h A^T) T^T`, which gives a logit for each id. Defaults to
            `False`.
        training: Boolean. Matters only for `negative_weight`.

    Input shape:
        Integer tensor of any shape; with `reverse`, float tensor
        `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with `reverse`,
        `(..., input_dim)`.

    Raises:
        ValueError: if a size or number is out of range, a name is unknown,
            there are more anchors than ids, the initializer is for another
            number of ids, `relations` are of another number of ids, come with
            several sets of anchors or have nothing to act on, or
            `max_nonzeros` comes without `storage="sparse"`.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197): Algorithm 1;
          equation 5 (relations), equation 11 (`softmax_rows`)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_anchors=100,
        anchors_initializer="dynamic",
        l1=1e-5,
        non_negative=True,
        threshold="coordinate",
        storage=None,
        max_nonzeros=None,
        num_mixtures=1,
        activation=None,
        relations=None,
        negative_weight=0.0,
        orthogonality=0.0,
        target_nonzeros=None,
        transform_initializer=None,
        transform_regularizer=None,
        anchors_regularizer=None,
        anchors_constraint=None,
        softmax_rows=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        num_nonzeros = kwargs.pop("num_nonzeros", None)
        longest_row = kwargs.pop("longest_row", None)
        arguments = dict(locals())
        input_dim = check_positive_int("input_dim", input_dim)
        output_dim = check_positive_int("output_dim", output_dim)
        relations = check_arguments(arguments)
        mask_zero = check_boolean("mask_zero", mask_zero)
        seed = check_seed(seed)
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.num_anchors = num_anchors
        self.num_mixtures = num_mixtures
        self.activation = activation
        self.non_negative = non_negative
        self.threshold = threshold
        self.max_nonzeros = max_nonzeros
        self.relations = relations
        self.negative_weight = negative_weight
        self.orthogonality = orthogonality
        self.target_nonzeros = target_nonzeros
        self.softmax_rows = softmax_rows
        self.mask_zero = mask_zero
        self.seed = seed
        self.transform_initializer = keras.initializers.get(
            transform_initializer
        )
        self.transform_regularizer = keras.regularizers.get(
            transform_regularizer
        )
        self.anchors_regularizer = keras.regularizers.get(anchors_regularizer)
        self.anchors_constraint = keras.constraints.get(anchors_constraint)
        self.supports_masking = True
        self.autocast = False
        self._initial_l1 = float(l1)
        self._anchors_initializer = _get_initializer(
            anchors_initializer, num_mixtures, seed
        )
        self.segments = self._anchors_initializer.sizes(num_anchors)
        self.anchor_ids = self._anchors_initializer.choose(
            input_dim, num_anchors
        )
        check_use_of_relations(relations, self.anchor_ids, negative_weight)
        self.storage = storage or choose_storage(input_dim, num_anchors)
        if self.storage == "sparse" and max_nonzeros is None:
            self.max_nonzeros = min(16, num_anchors)
        if self.storage == "fixed":
            self._rows = FixedRows(self, num_nonzeros, longest_row)
        else:
            self._rows = STORAGES[self.storage](self)
        self.free_entries = FreeEntries(
            *(
                ([0], [])
                if relations is None
                else relations.free_entries(self.anchor_ids)
            ),
            num_anchors,
        )

    @classmethod
    def from_table(
        cls,
        table,
        num_anchors=100,
        max_nonzeros=8,
        non_negative=False,
        iterations=10,
        seed=None,
        verbose=1,
        **kwargs,
    ):
        """Fits anchors and transform to a trained table.

        Alternates orthogonal matching pursuit, which finds the anchors of
        each row, and least squares for the anchors.

        Args:
            table: Array `(input_dim, output_dim)`.
            num_anchors: Integer. Defaults to `100`.
            max_nonzeros: Integer. Non-zeros in a row of T at most. Defaults
                to `8`.
            non_negative: Boolean, as of the layer. Defaults to `False`, which
                is more faithful for as many numbers.
            iterations: Integer. Defaults to `10`.
            seed: Optional integer.
            verbose: `0` or `1`, whether to show progress.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `ANTEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.

        References:
            - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), appendix
              B
        """
        table = check_table(table)
        transform, anchors = learn_dictionary(
            table,
            num_anchors,
            max_nonzeros,
            non_negative=non_negative,
            iterations=iterations,
            seed=seed,
            verbose=verbose,
        )
        if kwargs.get("storage") == "sparse":
            kwargs.setdefault("max_nonzeros", max_nonzeros)
        layer = cls(
            *table.shape,
            num_anchors=num_anchors,
            non_negative=non_negative,
            seed=seed,
            **kwargs,
        )
        layer.build()
        layer.anchors.assign(anchors)
        layer.assign_transform(transform)
        return layer

    def build(self, input_shape=None):
        if self.built:
            return
        self.anchors = self.add_weight(
            shape=(self.num_anchors, self.output_dim),
            initializer=self._initialize_anchors,
            regularizer=self._anchors_loss(),
            constraint=self.anchors_constraint,
            autocast=False,
            name="anchors",
        )
        self.l1_value = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(self._initial_l1),
            dtype="float32",
            trainable=False,
            autocast=False,
            name="l1",
        )
        self._rows.build()
        self.built = True

    def _initialize_anchors(self, shape, dtype=None):
        vectors = self._anchors_initializer.vectors(*shape)
        return tf.convert_to_tensor(vectors, dtype=dtype)

    def call(self, inputs, reverse=False, training=False):
        if reverse:
            return self._logits(inputs)
        separates = training and self.negative_weight
        return self.look_up(
            inputs, self._embed_and_separate if separates else self.embed
        )

    def embed(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        different, places, room = unique_ids(ids)
        rows = self._rows.read(different, room)
        return tf.gather(self._compose(rows), places)

    def _compose(self, rows):
        weights = activate(rows, self.activation, self.segments)
        anchors = tf.convert_to_tensor(self.anchors.value)
        return tf.matmul(tf.cast(weights, anchors.dtype), anchors)

    def _logits(self, inputs):
        inputs = tf.convert_to_tensor(inputs)
        flat = tf.reshape(inputs, (-1, self.output_dim))
        flat = tf.cast(flat, self.variable_dtype)
        anchors = tf.convert_to_tensor(self.anchors.value)
        scores = tf.matmul(flat, anchors, transpose_b=True)
        if self.softmax_rows is None or self.storage == "fixed":
            rows = self._rows.read_all()
            weights = activate(rows, self.activation, self.segments)
            weights = tf.cast(weights, scores.dtype)
            logits = tf.matmul(scores, weights, transpose_b=True)
        else:
            logits = self._rows.project(scores, self.softmax_rows)
        logits = tf.cast(logits, self.compute_dtype)
        return unflatten(logits, inputs, inputs.shape[:-1], self.input_dim)

    def compute_mask(self, inputs, mask=None):
        if self._are_vectors(inputs):
            return mask
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def _are_vectors(self, inputs):
        """Whether these are inputs of a `reverse` call.

        `keras.Input` makes ids floats unless told otherwise.
        """
        return keras.backend.is_float_dtype(inputs.dtype) and inputs.shape[
            -1:
        ] == (self.output_dim,)

    def compute_output_shape(self, input_shape, reverse=False):
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs, reverse=False, training=False):
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape, reverse),
            dtype=self.compute_dtype,
            ragged=getattr(inputs, "ragged", False),
        )

    @property
    def l1(self):
        """The weight of `sum |T|` in the loss. May be set."""
        return float(self.l1_value.numpy()) if self.built else self._initial_l1

    @l1.setter
    def l1(self, value):
        self._initial_l1 = check_positive_number("l1", value, zero=True)
        if self.built:
            self.l1_value.assign(self._initial_l1)

    def get_config(self):
        config = super().get_config()
        chosen = self._anchors_initializer.chosen(
            self.input_dim, self.num_anchors, self.output_dim
        )
        config.update(
            {
                "input_dim": self.input_dim,
                "output_dim": self.output_dim,
                "num_anchors": self.num_anchors,
                "anchors_initializer": keras.saving.serialize_keras_object(
                    chosen
                ),
                "l1": self._initial_l1,
                "non_negative": self.non_negative,
                "threshold": self.threshold,
                "storage": self.storage,
                "max_nonzeros": self.max_nonzeros,
                "num_mixtures": self.num_mixtures,
                "activation": self.activation,
                "negative_weight": self.negative_weight,
                "orthogonality": self.orthogonality,
                "target_nonzeros": self.target_nonzeros,
                "transform_initializer": keras.initializers.serialize(
                    self.transform_initializer
                )
                if self.transform_initializer is not None
                else None,
                "transform_regularizer": keras.regularizers.serialize(
                    self.transform_regularizer
                ),
                "anchors_regularizer": keras.regularizers.serialize(
                    self.anchors_regularizer
                ),
                "anchors_constraint": keras.constraints.serialize(
                    self.anchors_constraint
                ),
                "softmax_rows": self.softmax_rows,
                "mask_zero": self.mask_zero,
                "seed": self.seed,
            }
        )
        if self.storage == "fixed":
            config["num_nonzeros"] = self._rows.num_nonzeros
            config["longest_row"] = self._rows.longest_row
            config["max_nonzeros"] = None
        elif self.relations is not None:
            config["relations"] = keras.saving.serialize_keras_object(
                self.relations
            )
        return config


def _get_initializer(value, num_mixtures, seed):
    if isinstance(value, str) and value == "dynamic":
        value = Dynamic(seed)
    if isinstance(value, (list, tuple)):
        value = Mixed([get_anchor_initializer(part) for part in value])
    value = get_anchor_initializer(value)
    if num_mixtures == 1 or isinstance(value, Mixed):
        return value
    if isinstance(value, Dynamic):
        # A seed each, or all sets would be the same.
        seeds = np.random.SeedSequence(value.seed).generate_state(num_mixtures)
        return Mixed([Dynamic(int(seed) >> 1) for seed in seeds])
    return Mixed([value] * num_mixtures)
