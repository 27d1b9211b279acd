"""How a transform is held, begun and read."""

import keras

from keras_compembed.transforms.dense_rows import DenseRows
from keras_compembed.transforms.lazy_rows import LazyRows
from keras_compembed.transforms.mixture import get_mixture
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.transform_rows import TransformRows
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

_STORAGES = {"dense": DenseRows, "lazy": LazyRows, "sparse": SparseRows}
# Numbers of T up to which a whole pass in each step, and memory for it and
# for the optimizer's slots, go unnoticed.
_DENSE_NUMBERS = 4_000_000
_LAZY_NUMBERS = 100_000_000


@keras.saving.register_keras_serializable(package="keras_compembed")
class Transform:
    """How an `ANTEmbedding` holds its transform T, begins and reads it.

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
      anchors with the largest gradient when it is looked up.

    By default, T is dense up to 4 million numbers, lazy up to 100 million
    and sparse beyond.

    Example:

    >>> transform = Transform("lazy", mixture="sparsemax")
    >>> layer = kc.ANTEmbedding(1000, 64, num_anchors=20, transform=transform)

    Args:
        storage: `None`, `"dense"`, `"lazy"`, `"sparse"`, or an instance such
            as `keras_compembed.transforms.SparseRows(max_nonzeros=8)`.
            Defaults to `None`: by the size of T.
        mixture: What turns each row of T into the weights of anchors:
            `None` (nothing), `"softmax"`, `"sparsemax"`, `"entmax"`, or for
            several sets of anchors a `keras_compembed.transforms.Mixture`.
            Defaults to `None`.
        initializer: Optional initializer of T. Defaults to `None`: up to 4
            random numbers per row.
        regularizer: Optional regularizer of T. Defaults to `None`.
        softmax_rows: Optional integer, for `reverse` calls: the gradient of a
            step reaches only so many rows of T, those with the largest
            gradients of logits. Defaults to `None`: all.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), equation 11
          (`softmax_rows`)
    """

    def __init__(
        self,
        storage=None,
        mixture=None,
        initializer=None,
        regularizer=None,
        softmax_rows=None,
    ):
        if isinstance(storage, dict):
            storage = keras.saving.deserialize_keras_object(storage)
        require(
            storage is None
            or isinstance(storage, TransformRows)
            or (isinstance(storage, str) and storage in _STORAGES),
            "`transform`, or its `storage`, must be None, 'dense', 'lazy', "
            "'sparse' or `SparseRows`.",
            storage=storage,
        )
        self.storage = storage
        self.mixture = get_mixture(mixture)
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)
        self.softmax_rows = check_positive_int(
            "softmax_rows", softmax_rows, optional=True
        )

    def shaped(self, num_rows, num_anchors):
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

    def changed(self, **changes):
        """The same but for some arguments."""
        return Transform(**vars(self) | changes)

    def get_config(self):
        return {
            name: keras.saving.serialize_keras_object(part)
            for name, part in vars(self).items()
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def get_transform(identifier):
    """A `Transform` of an argument, or of its serialized form."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Transform):
        return identifier
    return Transform(identifier)
