"""Parts of `ANTEmbedding` from what users pass for them."""

import numbers

import keras

from keras_compembed.transforms.dense_rows import DenseRows
from keras_compembed.transforms.l1 import L1
from keras_compembed.transforms.lazy_rows import LazyRows
from keras_compembed.transforms.mixture import Mixture
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.transform_rows import TransformRows

STORAGES = {"dense": DenseRows, "lazy": LazyRows, "sparse": SparseRows}
# Numbers of T up to which a whole pass in each step, and memory for it and
# for the optimizer's slots, go unnoticed.
_DENSE_NUMBERS = 4_000_000
_LAZY_NUMBERS = 100_000_000


def get_storage(identifier, num_rows, num_anchors):
    """A new way to hold T, of the shape asked for."""
    identifier = _deserialize(identifier)
    if identifier is None:
        identifier = choose_storage(num_rows, num_anchors)
    if isinstance(identifier, str) and identifier in STORAGES:
        rows = STORAGES[identifier]()
    elif isinstance(identifier, TransformRows):
        rows = type(identifier).from_config(identifier.get_config())
    else:
        raise ValueError(
            "`storage` must be None, 'dense', 'lazy', 'sparse', or an instance "
            "such as `keras_compembed.transforms.SparseRows(max_nonzeros=8)`. "
            f"Received: storage={identifier!r}."
        )
    rows.set_shape(num_rows, num_anchors)
    return rows


def choose_storage(num_rows, num_anchors):
    """The name of the way to hold T where the user names none."""
    size = num_rows * num_anchors
    if size <= _DENSE_NUMBERS:
        return "dense"
    return "lazy" if size <= _LAZY_NUMBERS else "sparse"


def get_l1(identifier, non_negative=True):
    """A new `L1`."""
    identifier = _deserialize(identifier)
    if isinstance(identifier, L1):
        return type(identifier).from_config(identifier.get_config())
    if isinstance(identifier, numbers.Real):
        return L1(identifier, non_negative)
    raise ValueError(
        "`l1` must be a number of at least 0, or a "
        f"`keras_compembed.transforms.L1`. Received: l1={identifier!r}."
    )


def get_mixture(identifier):
    """A `Mixture` of None, an activation, or a serialized form."""
    identifier = _deserialize(identifier)
    if isinstance(identifier, Mixture):
        return identifier
    if identifier is None or isinstance(identifier, str):
        return Mixture(activation=identifier)
    raise ValueError(
        "`mixture` must be None, the name of an activation, or a "
        "`keras_compembed.transforms.Mixture`. "
        f"Received: mixture={identifier!r}."
    )


def _deserialize(identifier):
    if isinstance(identifier, dict) and "class_name" in identifier:
        return keras.saving.deserialize_keras_object(identifier)
    return identifier
