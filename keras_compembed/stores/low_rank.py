"""Rows of low rank, which a matrix makes as wide as vectors."""

import keras

from keras_compembed.stores.weight_spec import WeightSpec
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class LowRank(WeightSpec):
    """The rank of a table, and how its projection begins and is trained.

    Example:

    >>> rank = LowRank(16, regularizer=keras.regularizers.L2(1e-4))
    >>> layer = kc.QuantizedEmbedding(1000, 64, bits=4, rank=rank)
    >>> layer.rank
    16

    Args:
        rank: Integer, the width of rows.
        initializer: Initializer of the projection `(rank, output_dim)`.
            Defaults to `"glorot_uniform"`.
        regularizer, constraint: Optional, of the projection.
    """

    def __init__(
        self,
        rank,
        initializer="glorot_uniform",
        regularizer=None,
        constraint=None,
    ):
        initializer = keras.initializers.get(initializer)
        super().__init__(initializer, regularizer, constraint)
        self.rank = check_positive_int("rank", rank)

    def get_config(self):
        return {**super().get_config(), "rank": self.rank}


def get_low_rank(identifier):
    """`LowRank` of an argument or of its serialized form, or None."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if identifier is None or isinstance(identifier, LowRank):
        return identifier
    return LowRank(identifier)
