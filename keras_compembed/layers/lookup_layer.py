"""Base of layers that turn ids into vectors."""

import contextlib
import contextvars
from collections.abc import Callable

import keras
import tensorflow as tf
from keras.src.backend import get_autocast_scope

from keras_compembed.classes.class_head import unflat
from keras_compembed.classes.class_scores import top_k_without
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.layers.options import get_combiner
from keras_compembed.layers.options import get_reverse
from keras_compembed.layers.options import serialize_combiner
from keras_compembed.litert.litert_form import unflatten
from keras_compembed.optimizers.running_optimizer import SteppedVariable
from keras_compembed.stores.store import Store
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require
from keras_compembed.utils.workers import variables_of_workers

_TIED = Reverse()
_INPUTS = "`inputs` with `reverse=True`"
# Arguments in earlier files.
_OF_COMBINER = ("combiner", "empty_value")
_OF_REVERSE = ("tie_weights", "reverse_dtype", "logit_soft_cap")
_LEARNS = contextvars.ContextVar("learns", default=False)


@contextlib.contextmanager
def rows_that_learn(learns):
    """Whether rows learn within, though `training` of a call is False."""
    token = _LEARNS.set(learns)
    try:
        yield
    finally:
        _LEARNS.reset(token)


@keras.saving.register_keras_serializable(package="keras_compembed")
class LookupLayer(WholeLoad, keras.layers.Layer):
    """Turns ids into the rows of a store, and vectors into logits."""

    # The table of logits if it differs from that of rows.
    reverse_embedding = None
    # The size limit of the `Budget` that the model was compressed to.
    max_file_bytes = None

    def __init__(
        self,
        store: Store | None = None,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        self.combiner = get_combiner(combiner)
        self.reverse = get_reverse(reverse)
        self.mask_zero = check_boolean("mask_zero", mask_zero)
        self.supports_masking = True
        self.autocast = False
        if isinstance(store, dict):
            store = keras.saving.deserialize_keras_object(store)
        if store is not None:
            self._set_store(store)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        # Copying a model replaces some of its layers.
        if "store" in vars(self) and name in self.store.parts():
            setattr(self.store, name, value)

    def _set_store(self, store, cls=None):
        """Sets the store of the rows, made from the arguments of `cls`."""
        self._class_of_arguments = cls
        store.dtype = self.variable_dtype
        self.store = store
        names = "input_dim", "output_dim", *store.settings, *store.attributes
        for name in names:
            setattr(self, name, getattr(store, name))
        for part in store.parts().values():
            if not self.trainable:
                part.trainable = False
        if self.reverse is not None and not self.reverse.tie_weights:
            require(
                store.second_table is not None,
                "`reverse` must tie weights, as this layer has one table only.",
                reverse=self.reverse,
            )
            # A subclass may have further arguments.
            config = LookupLayer.get_config(self)
            config |= {"combiner": None, "reverse": None, "mask_zero": False}
            config |= {"name": "reverse_embedding", **store.second_table}
            self.reverse_embedding = (cls or LookupLayer).from_config(config)

    @property
    def tie_weights(self) -> bool:
        """Same as in `ReversibleEmbedding`, for configs of keras-hub."""
        return self.reverse_embedding is None

    def add_weight(self, *args, **kwargs):
        with variables_of_workers():
            return super().add_weight(*args, **kwargs)

    def build(self, input_shape=None):
        if self.built:
            return
        self.store.build(self._add_weight_of_store)
        if self.reverse_embedding is not None:
            self.reverse_embedding.build()
        self.built = True

    def _add_weight_of_store(self, name, after_step=None, **kwargs):
        """`add_weight`, optionally with a function after each step."""
        kwargs = {"name": name, "autocast": False, **kwargs}
        if after_step is None:
            weight = self.add_weight(**kwargs)
        else:
            regularizer = kwargs.pop("regularizer")
            with keras.name_scope(self.name, caller=self):
                weight = SteppedVariable(after_step=after_step, **kwargs)
            weight.regularizer = regularizer
        # TensorFlow checkpoints save attributes.
        setattr(self, self._attribute_of_weight(name), weight)
        if after_step is not None and not self.trainable:
            # As in `add_weight`; it is trained when the layer is unfrozen.
            weight.trainable = False
        return weight

    def _attribute_of_weight(self, name):
        return name

    def call(
        self, inputs, weights=None, mask=None, reverse=False, training=False
    ):
        learns = (training or _LEARNS.get()) and self.trainable
        if reverse:
            if learns:
                (self.reverse_embedding or self).store.prepare_scores()
            return self.logits(inputs)
        if self.combiner is not None:
            return self._combine(inputs, weights, mask, learns)
        require(
            weights is None,
            "`weights` must be None for a layer without a `combiner`.",
            layer=self.name,
        )
        embed = self.learn if learns else self.embed
        return self._set_mask(self.look_up(inputs, embed), inputs)

    def _combine(self, inputs, weights, mask, learns):
        """Sums or means of the vectors of each row of ids."""

        def sum_rows(ids, weights, counts):
            if not learns:
                return self.store.sum_rows(ids, weights)
            sums = self.store.sum_rows(ids, weights, True, counts)
            self._add_losses_of_store()
            return sums

        # Half precision is too coarse for sums of vectors.
        dtype = keras.backend.result_type(self.variable_dtype, "float32")
        sums = self.combiner.combine(
            inputs, weights, mask, dtype, self.mask_zero, sum_rows
        )
        return tf.cast(sums, self.compute_dtype)

    def learn(
        self, ids: tf.Tensor, counts: tf.Tensor | None = None
    ) -> tf.Tensor:
        """`embed` in a training step; only ids in `counts` add losses."""
        if self.mask_zero:
            counts = tf.not_equal(ids, 0)
        vectors = self.store.read(ids, training=True, counts=counts)
        self._add_losses_of_store()
        return vectors

    def _add_losses_of_store(self):
        # If layers synchronize devices in `call`, Keras keeps the losses of
        # all devices in one list.
        losses, self.store.losses = self.store.losses, ()
        for loss in losses:
            # Use the dtype of Keras losses, whatever the layer's dtype.
            loss = tf.cast(loss, keras.config.floatx())
            loss.replica_context = tf.distribute.get_replica_context()
            self.add_loss(loss)

    def _get_own_losses(self):
        context = tf.distribute.get_replica_context()
        return [
            loss
            for loss in super()._get_own_losses()
            if getattr(loss, "replica_context", context) is context
        ]

    def embed(self, ids: tf.Tensor) -> tf.Tensor:
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        return self.store.read(ids)

    def look_up(self, inputs: tf.Tensor, embed: Callable) -> tf.Tensor:
        """Vectors of ids of any shape, including ragged and sparse tensors."""
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(
                self.look_up(inputs.flat_values, embed)
            )
        if isinstance(inputs, tf.SparseTensor):
            inputs = tf.sparse.to_dense(tf.sparse.reorder(inputs))
        ids = tf.convert_to_tensor(inputs)
        if ids.dtype not in (tf.int32, tf.int64):
            ids = tf.cast(ids, tf.int32)
        vectors = tf.cast(embed(tf.reshape(ids, (-1,))), self.compute_dtype)
        return unflatten(vectors, ids, self.output_dim)

    def logits(self, inputs: tf.Tensor) -> tf.Tensor:
        """Logits `(..., input_dim)` of vectors `(..., output_dim)`."""
        (logits,) = self._answer(
            inputs, _INPUTS, self.input_dim, lambda x, rows: [x.score(rows)]
        )
        return logits

    def _answer(self, vectors, name, width, answer):
        """Scores of the table of logits for vectors, and further results."""
        if isinstance(vectors, tf.RaggedTensor):
            answers = self._answer(vectors.flat_values, name, width, answer)
            return tuple(map(vectors.with_flat_values, answers))
        vectors = tf.convert_to_tensor(vectors)
        self._check_vectors(vectors, name)
        options, table = self.reverse or _TIED, self.reverse_embedding or self
        rows = tf.cast(vectors, options.dtype or self.variable_dtype)
        rows = tf.reshape(rows, (-1, self.output_dim))
        scores, *others = answer(table.store, rows)
        scores = tf.cast(scores, self._dtype_of_logits(vectors))
        scores, *others = (unflat(x, vectors, width) for x in (scores, *others))
        return options.cap(scores), *others

    def top_k(
        self, queries: tf.Tensor, k: int, exclude: tf.Tensor | None = None
    ) -> tuple:
        """Returns the ids with the highest logits, by exact search.

        The result is that of `tf.math.top_k` of `layer(queries,
        reverse=True)`. Ids are scored in chunks to save memory, and by their
        codes where that is faster.

        Args:
            queries: Float tensor `(..., output_dim)`.
            k: Integer from 1 to `input_dim`.
            exclude: Optional integer tensor `(..., n)`, ids to leave out of
                each result, such as items already seen, padded by -1. Defaults
                to `None`.

        Returns:
            Tuple `(scores, ids)` of tensors `(..., k)`, best first: scores
            with the dtype of logits, and int32 ids. For equal scores, the
            lower id is first.

        References:
            - [Petrov & Macdonald, 2024](https://arxiv.org/abs/2312.06165)
            - [Petrov, Macdonald & Tonellotto, 2024](
              https://arxiv.org/abs/2408.09992), PQTopK
        """
        self._require_built("top_k")
        k = check_positive_int("k", k, maximum=self.input_dim)

        def best(k):
            scores, ids = self._answer(
                queries, "`queries`", k, lambda x, rows: x.top_ids(rows, k)
            )
            return ids, scores

        ids, scores = top_k_without(best, k, exclude, queries, self.input_dim)
        return scores, ids

    @property
    def embeddings(self) -> tf.Tensor:
        """The whole table, a tensor `(input_dim, output_dim)`.

        It is computed at each access, and is differentiable. A layer that
        multiplies by it stays tied to this one, trains it, and is exported
        without the table. While codes are learned, it uses the codes that
        `kc.strip` would fix.
        """
        self._require_built("embeddings")
        # Keras casts variables when they are read.
        table, scope = self.store.read_all(), get_autocast_scope()
        return table if scope is None else scope.maybe_cast(table)

    def compute_output_shape(
        self, input_shape, weights_shape=None, reverse=False
    ):
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        if self.combiner is not None:
            input_shape = input_shape[:1]
        return (*input_shape, self.output_dim)

    def compute_output_spec(
        self, inputs, weights=None, mask=None, reverse=False, training=False
    ):
        dtype, is_ragged = self.compute_dtype, getattr(inputs, "ragged", False)
        if reverse:
            self._check_vectors(inputs, _INPUTS)
            dtype = self._dtype_of_logits(inputs)
        elif self.combiner is not None:
            self.combiner.check_shapes(inputs, weights, mask)
            is_ragged = False
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape, reverse=reverse),
            dtype=dtype,
            ragged=is_ragged,
        )

    def _set_mask(self, vectors, inputs):
        """Sets the mask of vectors where `compute_mask` cannot find it."""
        if self.mask_zero and (
            self.reverse is not None or self._may_be_vectors(inputs)
        ):
            vectors._keras_mask = keras.ops.not_equal(inputs, 0)
        return vectors

    def compute_mask(self, inputs, mask=None):
        if self.combiner is not None:
            return self.combiner.output_mask(inputs, mask)
        if self.reverse is not None:
            # The call sets the mask of its result.
            return None
        if self._may_be_vectors(inputs):
            return mask
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def _may_be_vectors(self, inputs):
        """Whether these may be inputs of a `reverse` call."""
        return keras.backend.is_float_dtype(inputs.dtype) and inputs.shape[
            -1:
        ] == (self.output_dim,)

    def _check_vectors(self, inputs, name):
        """Raises if these cannot be inputs of a `reverse` call."""
        shape = tf.TensorShape(inputs.shape)
        wanted = tf.TensorShape((self.output_dim,))
        is_wide = shape.rank != 0 and shape[-1:].is_compatible_with(wanted)
        require(
            is_wide and keras.backend.is_float_dtype(inputs.dtype),
            f"{name} must be float vectors of width `output_dim`="
            f"{self.output_dim}.",
            shape=shape,
            dtype=inputs.dtype,
            layer=self.name,
        )

    def _dtype_of_logits(self, vectors):
        dtype = self.reverse and self.reverse.dtype
        return dtype or self._dtype_of_products(vectors)

    def _dtype_of_products(self, vectors):
        """The dtype of vectors times a table read here, as in Keras."""
        scope = get_autocast_scope()
        read = scope and scope.dtype
        return keras.backend.result_type(
            vectors.dtype, read or self.variable_dtype
        )

    def _stripped(self, max_nonzeros=None, trainable=False):
        """A copy of the layer without its training state."""
        return self._filled(
            each.store.stripped(max_nonzeros, trainable)
            for each in self._list_tables()
        )

    def _grown(self, *vectors):
        """A copy of the layer with ids for further vectors of each table."""
        return self._filled(
            each.store.grown(rows)
            for each, rows in zip(self._list_tables(), vectors, strict=True)
        )

    def _filled(self, changes_and_arrays):
        """A copy with changed arguments and the rows of arrays."""
        changes, arrays = zip(*changes_and_arrays, strict=True)
        new = type(self).from_config({**self.get_config(), **changes[0]})
        new.build()
        for each, rows in zip(new._list_tables(), arrays, strict=True):
            each.store.load(rows)
        return new

    def _list_tables(self):
        """The layers that hold the tables of vectors and of logits."""
        tables = self, self.reverse_embedding
        return [each for each in tables if each is not None]

    def get_config(self):
        if self._class_of_arguments is None:
            store = keras.saving.serialize_keras_object(self.store)
            store = {"store": store}
        else:
            store = self.store.get_config()
        limit = self.max_file_bytes
        return {
            **super().get_config(),
            **store,
            **({} if limit is None else {"max_file_bytes": limit}),
            "combiner": serialize_combiner(self.combiner),
            "reverse": self.reverse
            and keras.saving.serialize_keras_object(self.reverse),
            "mask_zero": self.mask_zero,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        # Arguments in earlier files.
        config.pop("seed", None)
        join_arguments(config, "combiner", get_combiner, _OF_COMBINER)
        join_arguments(config, "reverse", Reverse, _OF_REVERSE)
        limit = config.pop("max_file_bytes", None)
        layer = super().from_config(config)
        layer.max_file_bytes = limit
        return layer

    def _require_built(self, name):
        if not self.built:
            raise AttributeError(
                f"You must build the layer before accessing `{name}`."
            )


def join_arguments(config, name, make, names):
    """Joins the arguments of earlier files to one argument."""
    values = [config.pop(each) for each in names if each in config]
    if values:
        config[name] = make(*values)
