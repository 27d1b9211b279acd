"""Base of the layers that turn ids into vectors."""

import contextlib

import keras
import tensorflow as tf


class LookupLayer(keras.layers.Layer):
    """Base of layers with `input_dim`, `output_dim` and `embed`."""

    @contextlib.contextmanager
    def embed_with(self, embed):
        """Makes the layer give other vectors for a while.

        Exports so write the look-up in ops that a runtime has; whatever holds
        the layer then uses these too.

        Args:
            embed: Function from a rank-1 tensor of ids to vectors
                `(ids, output_dim)`, in place of `embed`.
        """
        # Past Keras's tracking: the function may hold anything.
        attributes = vars(self)
        before = attributes.get("embed")
        attributes["embed"] = embed
        try:
            yield
        finally:
            del attributes["embed"]
            if before is not None:
                attributes["embed"] = before

    def look_up(self, inputs, embed):
        """Vectors of ids of any shape.

        Args:
            inputs: Integer tensor, or what becomes one; ragged and sparse
                ones too. Where a sparse tensor has nothing, the id is 0.
            embed: From a rank-1 tensor of ids to vectors
                `(ids, output_dim)`.

        Returns:
            Tensor of the shape of `inputs` followed by `output_dim`, of the
            compute dtype. Ragged if `inputs` is.
        """
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

    def add_replica_loss(self, loss):
        """Adds a loss that counts for the device it was computed on.

        For layers that synchronize devices in `call`: devices then take turns
        within a step, and Keras keeps the losses of all in one list.
        """
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

    def _require_built(self, name):
        if not self.built:
            raise AttributeError(
                f"You must build the layer before accessing `{name}`."
            )


def unflatten(rows, like, leading, width):
    """Rows in the leading shape of another tensor.

    Args:
        rows: Tensor `(rows, width)`.
        like: Tensor whose axes but the last are of the shape wanted.
        leading: The static shape of these axes.
        width: Integer.
    """
    return _reshape(rows, tf.shape(like)[:-1], leading, width)


def _reshape(rows, sizes, leading, width):
    rows = tf.reshape(rows, tf.concat([sizes, [width]], axis=0))
    # Nothing is known of tensors of unknown rank.
    rows.set_shape(leading.concatenate(width))
    return rows
