"""Storage, initial values and activation of a transform."""

import keras
import tensorflow as tf

from keras_compembed.anchors.lazy_rows import DenseRows
from keras_compembed.anchors.lazy_rows import LazyRows
from keras_compembed.anchors.sparse_rows import SparseRows
from keras_compembed.anchors.transform_rows import TransformRows
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Up to this size of T, a full pass in each step, and memory for T and the
# optimizer's slots, are negligible.
_DENSE_NUMBERS = 4_000_000
_LAZY_NUMBERS = 100_000_000


def sparsemax(rows):
    """The nearest points of the simplex: sums of 1, exact zeros."""
    order = tf.sort(tf.stop_gradient(rows), direction="DESCENDING")
    places = tf.range(1, tf.shape(rows)[1] + 1)
    places = tf.cast(places, rows.dtype)
    inside = 1 + places * order > tf.cumsum(order, axis=1)
    support, size = _support(rows, order, inside)
    total = tf.reduce_sum(support * rows, axis=1, keepdims=True)
    return tf.maximum(rows - (total - 1) / size, 0)


def entmax(rows):
    """1.5-entmax: between softmax and sparsemax, with exact zeros."""
    rows = rows / 2
    order = tf.sort(tf.stop_gradient(rows), direction="DESCENDING")
    places = tf.range(1, tf.shape(rows)[1] + 1)
    places = tf.cast(places, rows.dtype)
    mean = tf.cumsum(order, axis=1) / places
    mean_square = tf.cumsum(tf.square(order), axis=1) / places
    inside = _entmax_threshold(mean, mean_square, places) <= order
    support, size = _support(rows, order, inside)
    mean = tf.reduce_sum(support * rows, axis=1, keepdims=True) / size
    mean_square = tf.reduce_sum(support * rows * rows, axis=1, keepdims=True)
    threshold = _entmax_threshold(mean, mean_square / size, size)
    return tf.square(tf.maximum(rows - threshold, 0))


def _entmax_threshold(mean, mean_square, size):
    rest = (1 - size * (mean_square - tf.square(mean))) / size
    # The square root of 0 has no gradient.
    positive = rest > 0
    root = tf.sqrt(tf.where(positive, rest, 1))
    return mean - tf.where(positive, root, 0)


def _support(rows, order, inside):
    """1 for each entry with a weight, and their number."""
    kept = tf.where(inside, order, order[:, :1])
    smallest = tf.reduce_min(kept, axis=1, keepdims=True)
    support = tf.cast(tf.stop_gradient(rows) >= smallest, rows.dtype)
    return support, tf.reduce_sum(support, axis=1, keepdims=True)


ACTIVATIONS = {
    "softmax": tf.nn.softmax,
    "sparsemax": sparsemax,
    "entmax": entmax,
}


@keras.saving.register_keras_serializable(package="keras_compembed")
class Mixture(Settings):
    """Sets of anchors, with separate weights for each set."""

    def __init__(self, num_sets=1, activation=None):
        self.num_sets = check_positive_int("num_sets", num_sets)
        self.activation = check_choice(
            "mixture", activation, (None, *ACTIVATIONS)
        )

    def __call__(self, rows, segments):
        """Applies the activation to each segment of columns."""
        if self.activation is None:
            return rows
        function = ACTIVATIONS[self.activation]
        parts = tf.split(rows, segments, axis=1)
        return tf.concat([function(part) for part in parts], axis=1)


def _get_mixture(identifier, num_sets):
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Mixture):
        return identifier
    return Mixture(num_sets, identifier)


_STORAGES = {"dense": DenseRows, "lazy": LazyRows, "sparse": SparseRows}


@keras.saving.register_keras_serializable(package="keras_compembed")
class Transform(Settings):
    """Options of the transform T of an `ANTEmbedding`.

    **Storage** of T during training:

    - `"dense"` shrinks all of T after each step, as in the paper. The time of
      a step grows with `input_dim * num_anchors`.
    - `"lazy"` touches only the rows of the batch, and shrinks other rows when
      they are next read. With SGD the result equals `"dense"`, except for
      `weight_decay`; with thresholds by coordinate it is close. Use
      `keras_compembed.optimizers.SparseRowOptimizer` to make the time of a
      step independent of `input_dim`. Use it also if a model calls the layer
      more than once, as Keras optimizers apply the gradients of each lookup
      separately.
    - `"sparse"` holds at most `max_nonzeros` entries per row, so memory does
      not depend on `num_anchors`. An entry that became 0 is free. When its row
      is looked up, it moves to the column with the largest gradient, if that
      exceeds `l1`, and starts from 0 without optimizer state. If several
      lookups or batches precede a step, the first one decides.

    Example:

    >>> transform = Transform("lazy", mixture="sparsemax")
    >>> layer = kc.ANTEmbedding(1000, 64, num_anchors=20, transform=transform)

    Args:
        storage: `None`, `"dense"`, `"lazy"` or `"sparse"`. Defaults to `None`:
            dense up to 4 million entries, lazy up to 100 million, else sparse.
        mixture: Activation that turns a row of T into weights of anchors:
            `None`, `"softmax"`, `"sparsemax"` or `"entmax"`. Softmax makes all
            weights positive; the others give exact zeros. Defaults to `None`.
        initializer: Optional initializer of T. Defaults to `None`: up to 4
            random entries per row.
        regularizer: Optional regularizer of T. Defaults to `None`.
        softmax_rows: Optional integer, for `reverse` calls. Only this many
            rows of T get gradients in a step, those with the largest gradients
            of logits. Defaults to `None`: all rows.
        num_sets: Integer, the number of sets that anchors are divided into.
            The activation applies to each set. Defaults to `1`.
        max_nonzeros: Optional integer up to `num_anchors`, the entries in each
            row of `"sparse"` storage. Defaults to `min(16, num_anchors)`.

    Raises:
        ValueError: If an argument is invalid, or options conflict.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), equation 11
          (`softmax_rows`)
    """

    def __init__(
        self,
        storage: str | None = None,
        mixture: str | None = None,
        initializer: str | keras.Initializer | None = None,
        regularizer: str | keras.Regularizer | None = None,
        softmax_rows: int | None = None,
        num_sets: int = 1,
        max_nonzeros: int | None = None,
    ):
        if isinstance(storage, dict):
            storage = keras.saving.deserialize_keras_object(storage)
        require(
            storage is None
            or isinstance(storage, TransformRows)
            or (isinstance(storage, str) and storage in _STORAGES),
            "`transform` or its `storage` must be None, 'dense', 'lazy' or "
            "'sparse'.",
            storage=storage,
        )
        if max_nonzeros is not None:
            require(
                storage == "sparse",
                "`max_nonzeros` must be None unless `storage` is 'sparse'.",
                max_nonzeros=max_nonzeros,
                storage=storage,
            )
            storage = SparseRows(max_nonzeros)
        self.storage = storage
        self.mixture = _get_mixture(mixture, num_sets)
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)
        self.softmax_rows = check_positive_int(
            "softmax_rows", softmax_rows, optional=True
        )

    def shaped(self, num_rows: int, num_anchors: int) -> TransformRows:
        """Returns a copy with a new storage of this shape."""
        rows = self.storage
        if rows is None:
            size = num_rows * num_anchors
            few = "dense" if size <= _DENSE_NUMBERS else "lazy"
            rows = few if size <= _LAZY_NUMBERS else "sparse"
        if isinstance(rows, str):
            rows = _STORAGES[rows]()
        rows = type(rows).from_config(rows.get_config())
        rows.set_shape(num_rows, num_anchors)
        require(
            self.softmax_rows is None
            or self.mixture.activation is None
            and not isinstance(rows, SparseRows),
            "`softmax_rows` must be None with an activation or with sparse "
            "storage.",
            softmax_rows=self.softmax_rows,
        )
        return self.changed(storage=rows)

    def changed(self, **changes: object) -> "Transform":
        """Returns a copy with some arguments changed."""
        return Transform(**vars(self) | changes)
