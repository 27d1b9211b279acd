"""Base of the layers that turn ids into vectors."""

import contextlib
import functools

import keras
import tensorflow as tf
from keras.src.backend import get_autocast_scope

from keras_compembed.optimizers.read_rows import without_gradients
from keras_compembed.utils.swapped import swapped
from keras_compembed.utils.top_rows import top_rows
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require
from keras_compembed.utils.weighted_sums import weighted_sums
from keras_compembed.utils.whole_load import WholeLoad
from keras_compembed.utils.workers import variables_of_workers


class LookupLayer(WholeLoad, keras.layers.Layer):
    """Base of layers that turn ids into vectors, and vectors into logits."""

    def add_weight(self, *args, **kwargs):
        with variables_of_workers():
            return super().add_weight(*args, **kwargs)

    def call(self, inputs, reverse=False, training=False):
        if reverse:
            return self.logits(inputs)
        return self._set_mask(self.look_up(inputs, self.embed), inputs)

    @contextlib.contextmanager
    def embed_with(self, embed, **methods):
        """Makes the layer give other vectors for a while, as exports do."""
        sum_rows = functools.partial(LookupLayer.sum_rows, self)
        with swapped(self, **{"embed": embed, "sum_rows": sum_rows, **methods}):
            yield

    def sum_rows(self, ids, weights):
        """Weighted sums of vectors of ids `(groups, length)`."""
        return weighted_sums(self.embed(tf.reshape(ids, (-1,))), weights)

    @property
    def _dtype_of_sums(self):
        """Of sums of vectors, which half precision does not hold."""
        return keras.backend.result_type(self.variable_dtype, "float32")

    def look_up(self, inputs, embed):
        """Vectors of ids of any shape, ragged and sparse ones too."""
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
        return _reshape(vectors, tf.shape(ids), ids.shape, self.output_dim)

    def logits(self, inputs, dtype=None):
        """Products `(..., input_dim)` of vectors `(..., output_dim)`."""
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(
                LookupLayer.logits(self, inputs.flat_values, dtype)
            )
        inputs = tf.convert_to_tensor(inputs)
        self._check_vectors(inputs)
        vectors = tf.cast(inputs, dtype or self.variable_dtype)
        logits = self.score(tf.reshape(vectors, (-1, self.output_dim)))
        logits = tf.cast(logits, dtype or self._dtype_of_products(inputs))
        return unflatten(logits, inputs, inputs.shape[:-1], self.input_dim)

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        table = tf.cast(self.embed_all(), vectors.dtype)
        return tf.matmul(vectors, table, transpose_b=True)

    def top_k(self, queries, k, dtype=None):
        """The ids with the highest logits, exactly.

        The same as `tf.math.top_k` of `layer(queries, reverse=True)`, in
        memory that does not grow with the number of ids times queries: ids
        are scored in chunks, by their codes where that takes less time.

        Args:
            queries: Float tensor `(..., output_dim)`.
            k: Integer from 1 to `input_dim`.
            dtype: Same as in `logits`.

        Returns:
            Tuple `(scores, ids)` of tensors `(..., k)`, best first: floats of
            the dtype of logits, and int32. Of ids with equal scores, the
            lower is first.

        Raises:
            ValueError: if `k` is out of range or the queries are no float
                vectors of width `output_dim`.

        References:
            - [Petrov & Macdonald, 2024](https://arxiv.org/abs/2312.06165)
            - [Petrov, Macdonald & Tonellotto, 2024](
              https://arxiv.org/abs/2408.09992), PQTopK
        """
        if not isinstance(queries, tf.RaggedTensor):
            queries = tf.convert_to_tensor(queries)
        return self._top_k(
            queries,
            k,
            dtype or self.variable_dtype,
            dtype or self._dtype_of_products(queries),
        )

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""

        def make_score(part):
            def score(ids):
                # Devices cannot wait for each other in a loop.
                with without_gradients():
                    rows = tf.cast(self.embed(ids), part.dtype)
                return tf.matmul(part, rows, transpose_b=True)

            return score

        return top_rows(vectors, k, self.input_dim, make_score)

    def _top_k(self, queries, k, dtype, result_dtype):
        """Scores and ids `(..., k)`, computed in one dtype, of another."""
        self._require_built("top_k")
        k = check_positive_int("k", k, maximum=self.input_dim)
        if isinstance(queries, tf.RaggedTensor):
            flat = queries.flat_values
            answers = self._top_k(flat, k, dtype, result_dtype)
            return tuple(map(queries.with_flat_values, answers))
        queries = tf.convert_to_tensor(queries)
        self._check_vectors(queries, "`queries`")
        vectors = tf.reshape(tf.cast(queries, dtype), (-1, self.output_dim))
        scores, ids = self.top_ids(vectors, k)
        return tuple(
            unflatten(answer, queries, queries.shape[:-1], k)
            for answer in (tf.cast(scores, result_dtype), ids)
        )

    @property
    def embeddings(self):
        """The whole table, a tensor `(input_dim, output_dim)`.

        It is made each time that it is read, and can be differentiated with
        respect to the weights that it is made of: a layer that multiplies by
        it stays tied to this one, trains it, and is exported without the
        table. While codes are learned, by those that `kc.strip` would fix.
        """
        self._require_built("embeddings")
        return self._cast_as_variable(self.embed_all())

    def embed_all(self):
        """The table `(input_dim, output_dim)`, made for the moment."""
        return self.embed(tf.range(self.input_dim))

    def compute_output_shape(self, input_shape, reverse=False):
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs, reverse=False, training=False):
        dtype = self.compute_dtype
        if reverse:
            self._check_vectors(inputs)
            dtype = self._dtype_of_products(inputs)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape, reverse=reverse),
            dtype=dtype,
            ragged=getattr(inputs, "ragged", False),
        )

    def add_replica_loss(self, loss):
        """Adds a loss that counts for the device it was computed on."""
        # Where layers synchronize devices in `call`, Keras keeps the losses of
        # all in one list.
        # The dtype of Keras's losses, whatever that of the layer is.
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

    def _set_mask(self, vectors, inputs):
        """Marks what a look-up gives, where `compute_mask` cannot tell."""
        if self.mask_zero and self._may_be_vectors(inputs):
            vectors._keras_mask = keras.ops.not_equal(inputs, 0)
        return vectors

    def compute_mask(self, inputs, mask=None):
        if self._may_be_vectors(inputs):
            return mask
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def _may_be_vectors(self, inputs):
        """Whether these may be inputs of a `reverse` call."""
        return keras.backend.is_float_dtype(inputs.dtype) and inputs.shape[
            -1:
        ] == (self.output_dim,)

    def _check_vectors(self, inputs, name="`inputs` with `reverse=True`"):
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

    def _cast_as_variable(self, table):
        """Casts a table as Keras casts variables where they are read."""
        scope = get_autocast_scope()
        return table if scope is None else scope.maybe_cast(table)

    def _dtype_of_products(self, vectors):
        """The dtype of vectors times a table read here, as Keras has it."""
        scope = get_autocast_scope()
        read = scope and scope.dtype
        return keras.backend.result_type(
            vectors.dtype, read or self.variable_dtype
        )

    def _again(self, **changes):
        """A layer of the same config, but for some arguments."""
        return type(self).from_config({**self.get_config(), **changes})

    def _require_built(self, name):
        if not self.built:
            raise AttributeError(
                f"You must build the layer before accessing `{name}`."
            )


def unflatten(rows, like, leading, width):
    """Rows in the leading shape of another tensor."""
    return _reshape(rows, tf.shape(like)[:-1], leading, width)


def _reshape(rows, sizes, leading, width):
    rows = tf.reshape(rows, tf.concat([sizes, [width]], axis=0))
    # Nothing is known of tensors of unknown rank.
    rows.set_shape(leading.concatenate(width))
    return rows
