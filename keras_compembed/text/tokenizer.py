"""What all tokenizers share: texts in, padded ids out."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int


class Tokenizer(keras.layers.Layer):
    """Base of the layers that turn texts into ids.

    A subclass has `tokenize`, `get_vocabulary` and `vocabulary_size`, and
    passes the ids of padding and of what it does not know.

    Args:
        pad_id: Integer, what fills rows up.
        unknown_id: Integer, what stands for what is not in the vocabulary.
        sequence_length: Optional integer. So many ids of each text, cut off or
            filled up behind. Defaults to `None`: as many as the longest text
            of a batch has, and at least one.
        unknown_if_empty: Boolean. Whether a text without tokens reads as one
            unknown token, so that an average over its tokens divides by one
            and not by zero. Defaults to `True`.
        **kwargs: `name` of `keras.layers.Layer`.

    Call arguments:
        inputs: Strings: a tensor, an array, or a list of them.

    Input shape:
        `(batch,)` or `(batch, 1)`.

    Output shape:
        int32 `(batch, sequence_length)`.
    """

    def __init__(
        self,
        pad_id,
        unknown_id,
        sequence_length=None,
        unknown_if_empty=True,
        **kwargs,
    ):
        # A policy for numbers says nothing of strings and ids.
        kwargs.pop("dtype", None)
        super().__init__(dtype="int32", **kwargs)
        if sequence_length is not None:
            check_positive_int("sequence_length", sequence_length)
        self.pad_id = pad_id
        self.unknown_id = unknown_id
        self.sequence_length = sequence_length
        self.unknown_if_empty = check_boolean(
            "unknown_if_empty", unknown_if_empty
        )
        self.supports_jit = False
        # Lists of strings, as Keras's own layers for text take them.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True

    @property
    def vocabulary_size(self):
        """Number of ids: the `input_dim` of an embedding behind."""
        return len(self.get_vocabulary())

    def get_vocabulary(self):
        """List of strings, the token of each id."""
        raise NotImplementedError

    def count_bytes(self):
        """Bytes of what a file needs to tokenize as the layer does."""
        raise NotImplementedError

    def tokenize(self, texts):
        """Ids of the tokens of texts, without padding.

        Args:
            texts: String tensor `(batch,)`.

        Returns:
            int32 `tf.RaggedTensor` `(batch, None)`.
        """
        raise NotImplementedError

    def build(self, input_shape=None):
        self.built = True

    def call(self, inputs):
        # Strings live on processors.
        with tf.device("CPU:0"):
            return self._pad(self.tokenize(self._as_texts(inputs)))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.sequence_length)

    def compute_output_spec(self, inputs):
        self._check_shape(inputs.shape)
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype="int32")

    def get_config(self):
        config = super().get_config()
        del config["dtype"]
        return {
            **config,
            "sequence_length": self.sequence_length,
            "unknown_if_empty": self.unknown_if_empty,
        }

    def _as_texts(self, inputs):
        texts = tf.convert_to_tensor(inputs)
        if texts.dtype != tf.string:
            raise ValueError(
                f"`{type(self).__name__}` must be called on strings. "
                f"Received: inputs of dtype {texts.dtype.name}."
            )
        self._check_shape(texts.shape)
        return tf.reshape(texts, [-1])

    def _check_shape(self, shape):
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
            raise ValueError(
                f"`{type(self).__name__}` must be called on texts of shape "
                "(batch,) or (batch, 1). "
                f"Received: inputs of shape {tuple(shape)}."
            )

    def _pad(self, rows):
        ids = rows.to_tensor(self.pad_id, shape=(None, self.sequence_length))
        if self.sequence_length is None:
            # Layers behind take no axis of length 0.
            ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=self.pad_id)
            ids = ids[:, : tf.maximum(tf.shape(ids)[1] - 1, 1)]
        if self.unknown_if_empty:
            is_empty = tf.equal(rows.row_splits[1:], rows.row_splits[:-1])
            first = tf.where(is_empty, self.unknown_id, ids[:, 0])
            ids = tf.concat([tf.expand_dims(first, 1), ids[:, 1:]], axis=1)
        return ids
