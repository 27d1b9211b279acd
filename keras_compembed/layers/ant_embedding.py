"""Embedding composed from a few anchors by a sparse transform."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.mixed import Mixed
from keras_compembed.anchors.mixed import get_anchor_initializer
from keras_compembed.anchors.mixed import without_data
from keras_compembed.anchors.relations import Relations
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.read_rows import unique_ids
from keras_compembed.optimizers.stepped_variable import SteppedVariable
from keras_compembed.transforms.fixed_rows import FixedRows
from keras_compembed.transforms.free_entries import FreeEntries
from keras_compembed.transforms.mixture import Mixture
from keras_compembed.transforms.proximal_step import ProximalStep
from keras_compembed.transforms.registry import get_l1
from keras_compembed.transforms.registry import get_mixture
from keras_compembed.transforms.registry import get_storage
from keras_compembed.transforms.separation import Separation
from keras_compembed.transforms.sparse_coding import learn_dictionary
from keras_compembed.transforms.sparse_coding import sparse_code
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.transforms.transform_start import TransformStart
from keras_compembed.utils.repeat_rows import repeat_rows
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require
from keras_compembed.utils.weighted_sums import weighted_sums
from keras_compembed.utils.whole_load import check_shapes


@keras.saving.register_keras_serializable(package="keras_compembed")
class ANTEmbedding(LookupLayer):
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
    `optimizer.apply`. Then `kc.strip` the model, or
    `keras_compembed.export.export_litert` it, which stores rows sparse in
    either case.

    To learn T for given anchors (appendix B of the paper), build the layer
    and set `layer.anchors.trainable = False` before `compile`.

    **Storage** of T while it is trained:

    - `"dense"` shrinks the whole of T after each step: the algorithm of the
      paper. A step's time grows with `input_dim * num_anchors`.
    - `"lazy"` touches the rows of the batch. Each row remembers when it was
      last shrunk, and what it owes since is taken when it is read, so that
      every reading is as up to date as with `"dense"`. With SGD the two are
      equal, but for `weight_decay`, which is of the whole variable: what a
      row owes does not decay. With thresholds that follow coordinates, what
      a row owes is by the mean of its non-zeros when it was last looked up:
      near to `"dense"`, not equal. Pass the optimizer through
      `keras_compembed.optimizers.SparseRowOptimizer` for steps whose time does
      not depend on `input_dim`: Keras's own Adam turns to the whole of T. Do so
      too where a model calls the layer more than once: Keras's optimizers
      take the gradients of several look-ups apart.
    - `"sparse"` holds at most 16 numbers per row, or as many as
      `keras_compembed.transforms.SparseRows(max_nonzeros)` says, so that
      memory does not depend on `num_anchors`. Free places of a row go to the
      anchors with the largest gradient when it is looked up. Where gradients
      of several batches make one step, the first that has the row decides.

    By default, T is dense up to 4 million numbers, lazy up to 100 million
    and sparse beyond.

    **With a sampled softmax**, look up the classes drawn like any ids:
    `logits = hidden @ transpose(layer(classes))`.

    **Special cases** (appendix D of the paper). Vectors for frequent ids only:
    `Frequency` anchors, `transform_initializer="zeros"`, and `kc.strip`
    before training, so that only anchors are trained. A table of low rank:
    `l1=L1(0, non_negative=False)` and a dense `transform_initializer`.
    Discrete codes: `mixture=Mixture(num_sets)`, rows with a single 1 in each
    set through `assign_transform`, and `kc.strip`.

    Example:

    >>> layer = ANTEmbedding(1000, 64, num_anchors=20, l1=1e-3)
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
        l1: Number of at least 0, the weight of the sum of absolute values of
            T in the loss, or a `keras_compembed.transforms.L1`, which says
            more: whether T may be negative, what thresholds follow, a number
            of non-zeros to aim at. The weight may be set later, as `l1` of
            the layer; `load_weights` sets it to that of the file, as Keras
            does with a learning rate. Defaults to `1e-5`.
        storage: `None`, `"dense"`, `"lazy"`, `"sparse"`, or an instance such
            as `keras_compembed.transforms.SparseRows(max_nonzeros=8)`.
            Defaults to `None`: by the size of T.
        mixture: What turns each row of T into the weights of anchors:
            `None` (nothing), `"softmax"`, `"sparsemax"`, `"entmax"`, or for
            several sets of anchors a `keras_compembed.transforms.Mixture`.
            Defaults to `None`.
        relations: Optional `keras_compembed.anchors.Relations` between ids.
            Entries of T for an id and an anchor that stands for a related id
            are not shrunk, and `negative_weight` spares related ids. Anchors
            that stand for ids are those of an initializer such as
            `Frequency`.
        negative_weight: Number of at least 0. Weight of the mean of
            `|t_u| . |t_v|` over pairs of ids of a batch that are not
            related, drawn at random. Defaults to `0.0`.
        transform_initializer: Optional initializer of T. Defaults to `None`:
            up to 4 random numbers per row.
        transform_regularizer: Optional regularizer of T.
        anchors_regularizer: Optional regularizer of A, such as
            `keras_compembed.anchors.Orthogonality`.
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
            `reverse`, a float tensor of vectors.
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

    Attributes:
        anchors: Keras variable, A.
        transform: Keras variable, T as `storage` holds it while it is trained.
        storage: `keras_compembed.transforms.TransformRows`, made for this
            layer.
        anchor_ids: Integer array `(num_anchors,)`, the id that each anchor
            stands for, -1 for none.
        segments: Tuple of integers, the sizes of the sets of anchors.

    Raises:
        ValueError: if an argument is unknown or out of range, or `relations`
            are of other ids or have nothing to act on.

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
        storage=None,
        mixture=None,
        relations=None,
        negative_weight=0.0,
        transform_initializer=None,
        transform_regularizer=None,
        anchors_regularizer=None,
        softmax_rows=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False
        self.input_dim = check_positive_int("input_dim", input_dim)
        self.output_dim = check_positive_int("output_dim", output_dim)
        self.num_anchors = check_positive_int(
            "num_anchors", num_anchors, maximum=input_dim
        )
        self.mask_zero = check_boolean("mask_zero", mask_zero)
        self.seed = check_seed(seed)
        self.mixture = get_mixture(mixture)
        self.storage = get_storage(storage, input_dim, num_anchors)
        if softmax_rows is not None:
            check_positive_int("softmax_rows", softmax_rows)
            require(
                self.activation is None
                and not isinstance(self.storage, SparseRows),
                "`softmax_rows` must be None with an activation, and with "
                "sparse storage.",
                softmax_rows=softmax_rows,
            )
        self.softmax_rows = softmax_rows
        self._l1 = get_l1(l1)
        require(
            not self._l1.target_nonzeros
            or self.activation not in ("sparsemax", "entmax"),
            "`target_nonzeros` must be None with 'sparsemax' and 'entmax'.",
            target_nonzeros=self._l1.target_nonzeros,
        )
        self._anchors_initializer = get_anchor_initializer(
            anchors_initializer, self.mixture.num_sets, self.seed
        )
        self.segments = self._anchors_initializer.sizes(num_anchors)
        self.relations = _get_relations(
            relations, input_dim, self._anchors_initializer
        )
        self.anchor_ids = self._anchors_initializer.choose(
            input_dim, num_anchors
        )
        self._separation = Separation(
            negative_weight, self.relations, self.mask_zero
        )
        require(
            relations is None
            or negative_weight
            or (self.anchor_ids >= 0).any(),
            "`relations` must come with anchors that stand for ids, or with a "
            "`negative_weight`: they have no effect otherwise.",
            negative_weight=negative_weight,
        )
        self._start = TransformStart(
            self.anchor_ids,
            self._l1.non_negative,
            transform_initializer,
            self.seed,
        )
        self.transform_regularizer = keras.regularizers.get(
            transform_regularizer
        )
        self.anchors_regularizer = keras.regularizers.get(anchors_regularizer)

    @classmethod
    def from_table(
        cls,
        table,
        num_anchors=100,
        max_nonzeros=None,
        l1=1e-5,
        iterations=10,
        sample_weight=None,
        seed=None,
        verbose=1,
        total_nonzeros=None,
        **kwargs,
    ):
        """Fits anchors and transform to a trained table.

        Alternates orthogonal matching pursuit, which finds the anchors of
        each row, and least squares for the anchors. Ctrl-C keeps the best so
        far.

        Args:
            table: Array `(input_dim, output_dim)`.
            num_anchors: Integer. Defaults to `100`.
            max_nonzeros: Optional integer. Non-zeros in a row of T at most.
                Defaults to `8`, or to `num_anchors` if there are fewer.
            l1: Number, for a T with negative numbers too, which is more
                faithful for as many numbers, or a
                `keras_compembed.transforms.L1`. Defaults to `1e-5`.
            iterations: Integer. Defaults to `10`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, e.g. how often its token occurs, or the root of that.
            seed: Optional integer.
            verbose: `0` or `1`, whether to show progress.
            total_nonzeros: Optional integer. Non-zeros of T: rows that gain
                most from a further number, times their `sample_weight`, get
                it, up to `max_nonzeros` in each. Defaults to `None`: all get
                `max_nonzeros`.
            **kwargs: Further arguments of the layer, but for the
                `anchors_initializer` and an activation in the `mixture`. With
                `storage="sparse"`, rows have room for `max_nonzeros` numbers.

        Returns:
            A built `ANTEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix of numbers up to
                1e12, or an argument is out of range.

        References:
            - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), appendix
              B
        """
        table = check_table(table, shards=True)
        l1 = get_l1(l1, non_negative=False)
        if max_nonzeros is None:
            max_nonzeros = min(
                8, check_positive_int("num_anchors", num_anchors)
            )
        if kwargs.get("storage") == "sparse":
            kwargs["storage"] = SparseRows(max_nonzeros)
        layer = cls(
            *table.shape, num_anchors=num_anchors, l1=l1, seed=seed, **kwargs
        )
        require(
            layer.activation is None,
            "`mixture` must have no activation in `from_table`.",
            activation=layer.activation,
        )
        initializer = kwargs.get("anchors_initializer")
        require(
            initializer is None,
            "`anchors_initializer` must be None in `from_table`.",
            anchors_initializer=initializer,
        )
        room = getattr(layer.storage, "max_nonzeros", num_anchors)
        check_positive_int("max_nonzeros", max_nonzeros, maximum=room)
        transform, anchors = learn_dictionary(
            table,
            num_anchors,
            max_nonzeros,
            non_negative=l1.non_negative,
            iterations=iterations,
            sample_weight=sample_weight,
            seed=seed,
            verbose=verbose,
            total_nonzeros=total_nonzeros,
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
            regularizer=self.anchors_regularizer,
            autocast=False,
            name="anchors",
        )
        self.l1_value = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(self._l1.l1),
            dtype="float32",
            trainable=False,
            autocast=False,
            name="l1",
        )
        self._build_storage()
        self.built = True

    def _initialize_anchors(self, shape, dtype=None):
        vectors = self._anchors_initializer.vectors(*shape)
        return tf.convert_to_tensor(vectors, dtype=dtype)

    def _build_storage(self):
        self.storage.build(
            self._add_weight_of_storage,
            self.variable_dtype,
            self._start,
            self._l1,
            self.l1_value,
            FreeEntries.from_relations(self.relations, self.anchor_ids),
        )

    def _trackable_children(self, *args, **kwargs):
        children = super()._trackable_children(*args, **kwargs)
        # No weight, but what TensorFlow saves has to hold it.
        if self.storage.loss_scale is not None:
            children["loss_scale"] = self.storage.loss_scale.value
        return children

    def _add_weight_of_storage(self, name, trainable, **kwargs):
        """`add_weight`, but proximal steps follow what is trained."""
        if not trainable:
            weight = self.add_weight(
                name=name, trainable=False, autocast=False, **kwargs
            )
            # Checkpoints of TensorFlow hold what is an attribute.
            setattr(self, f"_{name}_of_rows", weight)
            return weight
        with keras.name_scope(self.name, caller=self):
            self.transform = SteppedVariable(
                name=name,
                autocast=False,
                after_step=ProximalStep(
                    self.storage, self._l1, self.l1_value, self.anchors
                ),
                **kwargs,
            )
        self.transform.regularizer = self.transform_regularizer
        if not self.trainable:
            # As `add_weight` does; those of a frozen layer wait for the thaw.
            self.transform.trainable = False
        return self.transform

    def call(self, inputs, reverse=False, training=False):
        if reverse:
            return self.logits(inputs)
        embed = self.embed
        if self._separates(training):
            embed = functools.partial(embed, separates=True)
        return self._set_mask(self.look_up(inputs, embed), inputs)

    def _separates(self, training):
        """Whether a call adds the loss of unrelated ids."""
        return training and self._separation.negative_weight > 0

    def embed(self, ids, separates=False):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        rows, places = self._read(ids, separates)
        return repeat_rows(self._compose(rows), places)

    def _read(self, ids, separates):
        different, places, room = unique_ids(ids)
        rows = self.storage.read(different, room)
        if separates:
            self.add_replica_loss(self._separation(different, rows))
        return rows, places

    def sum_rows(self, ids, weights, separates=False):
        """Weighted sums: anchors meet the sums of their weights."""
        rows, places = self._read(tf.reshape(ids, (-1,)), separates)
        mixed = repeat_rows(self.mixture(rows, self.segments), places)
        anchors = tf.cast(self.anchors.value, weights.dtype)
        return tf.matmul(weighted_sums(mixed, weights), anchors)

    def _compose(self, rows):
        weights = self.mixture(rows, self.segments)
        anchors = tf.convert_to_tensor(self.anchors.value)
        return tf.matmul(tf.cast(weights, anchors.dtype), anchors)

    def score(self, vectors):
        """Products `(rows, input_dim)`, `(h A') T'`: the table is not made."""
        anchors = tf.cast(self.anchors.value, vectors.dtype)
        scores = tf.matmul(vectors, anchors, transpose_b=True)
        if self.softmax_rows is not None:
            return self.storage.project(scores, self.softmax_rows)
        weights = self.mixture(self.storage.read_all(), self.segments)
        weights = tf.cast(weights, scores.dtype)
        return tf.matmul(scores, weights, transpose_b=True)

    def _dtype_of_products(self, vectors):
        return self.compute_dtype

    @property
    def l1(self):
        """The weight of `sum |T|` in the loss. May be set."""
        return float(self.l1_value.numpy()) if self.built else self._l1.l1

    @l1.setter
    def l1(self, value):
        self._l1.l1 = check_positive_number("l1", value, zero=True)
        if self.built:
            self.l1_value.assign(value)

    @property
    def activation(self):
        """The activation of `mixture`."""
        return self.mixture.activation

    @property
    def nnz(self):
        """Integer, the non-zeros of T."""
        return self.get_transform().nnz

    @property
    def density(self):
        """Float, the part of T that is not 0."""
        return self.nnz / (self.input_dim * self.num_anchors)

    def embed_all(self):
        if not tf.executing_eagerly():
            return self._compose(self.storage.read_all())
        # Not all rows of T at once.
        parts = [
            self._compose(
                self.storage.read(tf.range(start, stop), stop - start)
            )
            for start, stop in self.storage.chunks()
        ]
        return tf.concat(parts, axis=0)

    def get_transform(self):
        """The non-zeros of T, a `SparseTransform`.

        With `"sparsemax"` and `"entmax"`, those of the weights that they
        give, so that `E = T A` again; with `"softmax"`, of what it is
        applied to.

        Raises:
            ValueError: if a number is not finite.
        """
        self._require_built("get_transform")
        if self.activation in (None, "softmax"):
            transform = self.storage.to_sparse().without_zeros()
        else:
            transform = SparseTransform.from_parts(
                (
                    self.mixture(
                        tf.constant(self.storage.rows(*part)), self.segments
                    ).numpy()
                    for part in self.storage.chunks()
                ),
                self.num_anchors,
            )
        self._check_finite(transform)
        return transform

    def assign_transform(self, transform):
        """Sets T, before training or in place of it.

        Args:
            transform: `SparseTransform`, or array `(input_dim, num_anchors)`.

        Raises:
            ValueError: if it has another shape, or more non-zeros in a row
                than `storage` has room for.
        """
        self._require_built("assign_transform")
        if not isinstance(transform, SparseTransform):
            transform = SparseTransform.from_parts(
                [check_table(transform, "transform")], np.shape(transform)[1]
            )
        shape, wanted = (
            (transform.num_rows, transform.num_columns),
            (self.input_dim, self.num_anchors),
        )
        require(
            shape == wanted,
            f"`transform` must have shape {wanted}.",
            shape=shape,
        )
        self.storage.load(transform)

    def _stripped(self, max_nonzeros=None, trainable=False):
        """A layer that stores T sparse, in places that stay."""
        if max_nonzeros is None:
            max_nonzeros = self._l1.target_nonzeros
        transform = self.get_transform()
        if max_nonzeros is not None:
            transform = transform.keep_largest(max_nonzeros)
        changes = {"storage": FixedRows.for_transform(transform, trainable)}
        if self.activation != "softmax":
            changes["mixture"] = Mixture(self.mixture.num_sets)
        return self._filled(self._again(**changes), transform)

    def _grown(self, vectors):
        """A layer with ids for further vectors."""
        fixed = isinstance(self.storage, FixedRows)
        require(
            self.activation is None,
            "Rows of T that grow must be the weights of anchors.",
            layer=self.name,
            activation=self.activation,
        )
        acts = not fixed or self._separation.negative_weight > 0
        require(
            self.relations is None or not acts,
            "Rows of T that grow must have no relations.",
            layer=self.name,
        )
        before = self.storage.to_sparse()
        room = getattr(self.storage, "max_nonzeros", self.num_anchors)
        # As many as other rows have, on average.
        mean = -(-before.nnz // before.num_rows)
        added = sparse_code(
            vectors,
            keras.ops.convert_to_numpy(self.anchors).astype("float32"),
            min(max(1, mean), room),
            self._l1.non_negative,
        )
        transform = before.append(added)
        changes = {"input_dim": transform.num_rows}
        if fixed:
            rows = FixedRows.for_transform(transform, self.storage.trainable)
            changes["storage"] = rows
        return self._filled(self._again(**changes), transform)

    def _filled(self, new, transform):
        """Gives a layer a transform, and the anchors of this one."""
        new.build()
        new.anchors.assign(self.anchors)
        new.l1_value.assign(self.l1_value)
        new.storage.load(transform)
        return new

    def save_own_variables(self, store):
        self.storage.settle()
        transform = self.storage.to_sparse()
        self._check_finite(transform)
        store["anchors"] = self.anchors.numpy()
        store["l1"] = self.l1_value.numpy()
        store["offsets"] = transform.offsets
        store["columns"] = transform.columns
        store["values"] = transform.values
        for name, value in self.storage.state().items():
            store[name] = value

    def load_own_variables(self, store):
        check_shapes(self, store, {"anchors": self.anchors})
        transform = SparseTransform(
            np.asarray(store["offsets"]),
            np.asarray(store["columns"]),
            np.asarray(store["values"]),
            self.num_anchors,
        )
        # Raises if it does not fit, and sets nothing.
        self.assign_transform(transform)
        self.anchors.assign(store["anchors"])
        l1 = np.asarray(store["l1"])
        self.l1_value.assign(l1)
        # Of a weight that follows a target, the config keeps the start.
        is_fixed = self._l1.target_nonzeros is None
        if is_fixed and l1 != np.float32(self._l1.l1):
            self._l1.l1 = float(l1)
        self.storage.load_state(store)

    def _check_finite(self, transform):
        bad = [
            name
            for name, values in (
                ("anchors", self.anchors.numpy()),
                ("transform", transform.values),
            )
            if not np.isfinite(values).all()
        ]
        require(
            not bad,
            f"Weights of the layer {self.name!r} must be finite. NaN or "
            f"infinity in {' and '.join(bad)}: lower the learning rate.",
            bad=bad,
        )

    def get_config(self):
        initializer = without_data(
            self._anchors_initializer,
            self.input_dim,
            self.num_anchors,
            self.output_dim,
        )
        # Relations act in training alone.
        trained = not isinstance(self.storage, FixedRows)
        parts = {
            "anchors_initializer": initializer,
            "l1": self._l1,
            "storage": self.storage,
            "mixture": self.mixture,
            "relations": self.relations if trained else None,
            "transform_initializer": self._start.initializer,
            "transform_regularizer": self.transform_regularizer,
            "anchors_regularizer": self.anchors_regularizer,
        }
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "num_anchors": self.num_anchors,
            "negative_weight": self._separation.negative_weight,
            "softmax_rows": self.softmax_rows,
            "mask_zero": self.mask_zero,
            "seed": self._start.seed,
            **{
                name: keras.saving.serialize_keras_object(part)
                for name, part in parts.items()
            },
        }


def _get_relations(relations, input_dim, initializer):
    if isinstance(relations, dict):
        relations = keras.saving.deserialize_keras_object(relations)
    if relations is None:
        return None
    require(
        isinstance(relations, Relations) and relations.input_dim == input_dim,
        f"`relations` must be `Relations` of {input_dim} ids.",
        relations=relations,
    )
    require(
        not isinstance(initializer, Mixed),
        "`relations` must be None with several sets of anchors.",
        relations=relations,
    )
    return relations
