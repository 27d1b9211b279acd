"""Base of tokenizers: texts in, padded ids out."""

import collections
import itertools
from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

_AT_ONCE = 1024  # Texts.


class Tokenizer(keras.layers.Layer):
    """Base of layers from texts to ids."""

    # Attributes that are constructor arguments.
    _settings = ()

    def __init__(
        self,
        pad_id: int,
        unknown_id: int,
        sequence_length: int | None = None,
        unknown_if_empty: bool = True,
        **kwargs: object,
    ):
        # Dtype policies do not apply to strings and ids.
        kwargs.pop("dtype", None)
        super().__init__(dtype="int32", **kwargs)
        check_positive_int("sequence_length", sequence_length, optional=True)
        self.pad_id = pad_id
        self.unknown_id = unknown_id
        self.sequence_length = sequence_length
        self.unknown_if_empty = check_boolean(
            "unknown_if_empty", unknown_if_empty
        )
        self.supports_jit = False
        # Accept lists of strings, as Keras's text layers do.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True

    @property
    def vocabulary_size(self) -> int:
        """Number of ids: the `input_dim` of the next embedding."""
        return len(self.get_vocabulary())

    def get_vocabulary(self) -> list:
        """List of strings, the token of each id."""
        raise NotImplementedError

    def count_bytes(self) -> int:
        """Bytes of the tokenizer in a file."""
        raise NotImplementedError

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids of texts `(batch,)`, int32 ragged `(batch, None)`."""
        raise NotImplementedError

    @property
    def needed_ids(self) -> set:
        """Set of the ids that each pruned vocabulary must keep."""
        # Layers may mask id 0, whatever its token.
        return {0, self.pad_id, self.unknown_id}

    def select(self, ids: Iterable) -> "Tokenizer":
        """Returns a tokenizer with some of the tokens: id `i` is `ids[i]` here.

        Args:
            ids: Integers in ascending order, including `needed_ids`.
        """
        raise NotImplementedError

    def count_ids(self, texts: Iterable) -> np.ndarray:
        """Counts each id in texts; returns an int64 array."""
        counts = np.zeros(self.vocabulary_size, "int64")
        texts = iter(read_texts(texts))
        while part := list(itertools.islice(texts, _AT_ONCE)):
            ids = self.tokenize(tf.constant(part)).flat_values.numpy()
            counts += np.bincount(ids, minlength=len(counts))
        return counts

    def find_ids(
        self,
        texts: Iterable,
        min_count: int = 1,
        vocabulary_size: int | None = None,
    ) -> np.ndarray:
        """Returns the ids that texts use, and `needed_ids`.

        They are an int64 array in ascending order.

        Args:
            texts: Iterable of strings, or a `tf.data.Dataset` of them.
            min_count: Positive integer, the least count of a token. Defaults
                to `1`.
            vocabulary_size: Optional positive integer, the largest number of
                ids; the most frequent are kept. Defaults to `None`: no limit.
        """
        check_positive_int("min_count", min_count)
        counts = self.count_ids(texts)
        needed = np.array(sorted(self.needed_ids))
        counts[needed] = 0
        found = np.flatnonzero(counts >= min_count)
        if vocabulary_size is not None:
            check_positive_int("vocabulary_size", vocabulary_size, len(needed))
            order = np.argsort(-counts[found], kind="stable")
            found = found[order[: vocabulary_size - len(needed)]]
        return np.union1d(needed, found)

    def prune(
        self,
        texts: Iterable,
        min_count: int = 1,
        vocabulary_size: int | None = None,
    ) -> "Tokenizer":
        """Returns a smaller tokenizer, with the tokens that texts use.

        Ids change. For a model trained with this tokenizer, call
        `keras_compembed.compression.prune_vocabulary`.

        Args:
            texts, min_count, vocabulary_size: Same as in `find_ids`.
        """
        return self.select(self.find_ids(texts, min_count, vocabulary_size))

    def build(self, input_shape=None):
        self.built = True

    @property
    def compute_dtype(self):
        # Dtype of the inputs, for models that begin with the layer.
        return "string"

    variable_dtype = compute_dtype

    def call(self, inputs):
        # Strings are on the CPU.
        with tf.device("CPU:0"):
            texts = self._as_texts(inputs)
            ids = self._pad(self.tokenize(tf.reshape(texts, [-1])))
            return ids[0] if texts.shape.rank == 0 else ids

    def compute_output_shape(self, input_shape):
        return (*input_shape[:1], self.sequence_length)

    def compute_output_spec(self, inputs):
        self._check_shape(inputs.shape)
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype="int32")

    def get_config(self):
        config = super().get_config()
        del config["dtype"]
        names = *self._settings, "sequence_length", "unknown_if_empty"
        return {**config, **{name: getattr(self, name) for name in names}}

    def _as_texts(self, inputs):
        name = type(self).__name__
        require(
            not isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)),
            f"`{name}` must be called on dense texts.",
            inputs=type(inputs),
        )
        texts = tf.convert_to_tensor(inputs)
        require(
            texts.dtype == tf.string,
            f"`{name}` must be called on strings.",
            dtype=texts.dtype.name,
        )
        self._check_shape(texts.shape)
        return texts

    def _check_shape(self, shape):
        rank = tf.TensorShape(shape).rank
        require(
            rank in (0, 1) or (rank == 2 and shape[1] == 1),
            f"`{type(self).__name__}` must be called on texts of shape (), "
            "(batch,) or (batch, 1).",
            shape="unknown" if rank is None else tuple(shape),
        )

    def _pad(self, rows):
        ids = rows.to_tensor(self.pad_id, shape=(None, self.sequence_length))
        if self.sequence_length is None:
            # Later layers accept no axis of length 0.
            ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=self.pad_id)
            ids = ids[:, : tf.maximum(tf.shape(ids)[1] - 1, 1)]
        if self.unknown_if_empty:
            is_empty = tf.equal(rows.row_splits[1:], rows.row_splits[:-1])
            first = tf.where(is_empty, self.unknown_id, ids[:, 0])
            ids = tf.concat([tf.expand_dims(first, 1), ids[:, 1:]], axis=1)
        return ids


def check_each_once(items, kind):
    """Raises if a word or piece of a vocabulary is repeated."""
    ((item, times),) = collections.Counter(items).most_common(1)
    rule = f"`vocabulary` must hold each {kind} once."
    require(times == 1, rule, **{kind: item}, times=times)


def read_texts(texts):
    """Yields the strings of a list, an array or a dataset."""
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
        raise ValueError(
            "`texts` must be an iterable of strings. Received: an object of "
            f"type {type(texts).__name__}."
        )
    is_empty = True
    for text in _flat(texts):
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        if not isinstance(text, str):
            raise ValueError(
                "`texts` must hold strings. "
                f"Received: an object of type {type(text).__name__}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                "`texts` must be valid UTF-8. "
                f"Received: {text[:80]!r} ({error})."
            ) from error
        is_empty = False
        yield text
    if is_empty:
        raise ValueError("`texts` must hold a text. Received: none.")


def _flat(texts):
    """Strings, also of tensors and arrays among them."""
    for text in [texts] if tf.is_tensor(texts) else texts:
        if tf.is_tensor(text):
            text = text.numpy()
        if isinstance(text, np.ndarray):
            yield from text.ravel().tolist()
        else:
            yield text
