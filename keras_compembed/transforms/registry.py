"""Parts of `ANTEmbedding` from what users pass for them."""

import keras

from keras_compembed.transforms.dense_rows import DenseRows
from keras_compembed.transforms.l1 import L1
from keras_compembed.transforms.lazy_rows import LazyRows
from keras_compembed.transforms.mixture import Mixture
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.transform_rows import TransformRows
from keras_compembed.utils.validation import require

STORAGES = {"dense": DenseRows, "lazy": LazyRows, "sparse": SparseRows}
# Numbers of T up to which a whole pass in each step, and memory for it and
# for the optimizer's slots, go unnoticed.
_DENSE_NUMBERS = 4_000_000
_LAZY_NUMBERS = 100_000_000


def get_storage(identifier, num_rows, num_anchors):
    """A new way to hold T, of the shape asked for."""
    rows = _deserialize(identifier)
    if rows is None:
        size = num_rows * num_anchors
        few = "dense" if size <= _DENSE_NUMBERS else "lazy"
        rows = few if size <= _LAZY_NUMBERS else "sparse"
    if isinstance(rows, str) and rows in STORAGES:
        rows = STORAGES[rows]()
    require(
        isinstance(rows, TransformRows),
        "`storage` must be None, 'dense', 'lazy', 'sparse' or `SparseRows`.",
        storage=identifier,
    )
    rows = type(rows).from_config(rows.get_config())
    rows.set_shape(num_rows, num_anchors)
    return rows


def get_l1(identifier, non_negative=True):
    """A new `L1`."""
    identifier = _deserialize(identifier)
    if isinstance(identifier, L1):
        return type(identifier).from_config(identifier.get_config())
    return L1(identifier, non_negative)


def get_mixture(identifier):
    """A `Mixture` of None, an activation, or a serialized form."""
    identifier = _deserialize(identifier)
    if isinstance(identifier, Mixture):
        return identifier
    return Mixture(activation=identifier)


def _deserialize(identifier):
    if isinstance(identifier, dict) and "class_name" in identifier:
        return keras.saving.deserialize_keras_object(identifier)
    return identifier
