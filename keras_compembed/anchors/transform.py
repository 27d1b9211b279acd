"""How a transform is held, begun and read."""

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

# Numbers of T up to which a whole pass in each step, and memory for it and
# for the optimizer's slots, go unnoticed.
_DENSE_NUMBERS = 4_000_000
_LAZY_NUMBERS = 100_000_000


def sparsemax(rows):
    """The points of the simplex nearest to rows: sums of 1, exact zeros."""
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
    # The root of 0 has no gradient.
    positive = rest > 0
    root = tf.sqrt(tf.where(positive, rest, 1))
    return mean - tf.where(positive, root, 0)


def _support(rows, order, inside):
    """1 for each number that has a weight, and how many they are."""
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
    """Sets of anchors, of which each vector takes weights set by set."""

    def __init__(self, num_sets=1, activation=None):
        self.num_sets = check_positive_int("num_sets", num_sets)
        self.activation = check_choice(
            "mixture", activation, (None, *ACTIVATIONS)
        )

    def __call__(self, rows, segments):
        """Weights of anchors, each segment of columns by itself."""
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
    """How an `ANTEmbedding` holds its transform T, begins and reads it.

    **Storage** of T while it is trained:

    - `"dense"` shrinks the whole of T after each step: the algorithm of the
      paper. A step's time grows with `input_dim * num_anchors`.
    - `"lazy"` touches the rows of the batch; the shrinkage that a row owes is
      taken when it is read. With SGD it is equal to `"dense"`, but for
      `weight_decay`, which leaves out what a row owes; with thresholds that
      follow coordinates, near to it. Use
      `keras_compembed.optimizers.SparseRowOptimizer` for steps whose time does
      not depend on `input_dim`, and where a model calls the layer more than
      once: Keras's optimizers take the gradients of several look-ups apart.
    - `"sparse"` holds at most `max_nonzeros` numbers per row: memory does not
      depend on `num_anchors`. A place whose number has become 0 is free. When
      the row is looked up, free places take the columns with the largest
      gradients, where these exceed l1, and start from 0, with nothing of
      their past in the optimizer. Where several look-ups or batches precede a
      step, the first one decides.

    Example:

    >>> transform = Transform("lazy", mixture="sparsemax")
    >>> layer = kc.ANTEmbedding(1000, 64, num_anchors=20, transform=transform)

    Args:
        storage: `None`, `"dense"`, `"lazy"` or `"sparse"`. Defaults to `None`:
            dense up to 4 million numbers, lazy up to 100 million and sparse
            beyond.
        mixture: What turns each row of T into the weights of anchors:
            `None` (nothing), `"softmax"`, `"sparsemax"` or `"entmax"`. Softmax
            makes every weight positive, though still of few numbers; the
            others give exact zeros. Defaults to `None`.
        initializer: Optional initializer of T. Defaults to `None`: up to 4
            random numbers per row.
        regularizer: Optional regularizer of T. Defaults to `None`.
        softmax_rows: Optional integer, for `reverse` calls: the gradient of a
            step reaches only so many rows of T, those with the largest
            gradients of logits. Defaults to `None`: all.
        num_sets: Integer. Number of sets that anchors are divided into; each
            vector takes weights set by set. Defaults to `1`.
        max_nonzeros: Optional integer up to `num_anchors`, the room in each
            row of `"sparse"` storage. Defaults to `min(16, num_anchors)`.

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
            "`transform`, or its `storage`, must be None, 'dense', 'lazy' or "
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
        """The same with a storage of its own, of this shape."""
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
            "`softmax_rows` must be None with an activation, and with sparse "
            "storage.",
            softmax_rows=self.softmax_rows,
        )
        return self.changed(storage=rows)

    def changed(self, **changes: object) -> "Transform":
        """The same but for some arguments."""
        return Transform(**vars(self) | changes)
