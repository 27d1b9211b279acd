"""How a trained weight begins, what holds it, and how narrow it is."""

import keras

from keras_compembed.utils.saving import Settings
from keras_compembed.utils.saving import get_settings
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class WeightSpec(Settings):
    """Initializer, regularizer and constraint of a trained weight.

    Example:

    >>> codebooks = WeightSpec(regularizer=keras.regularizers.L2(1e-4))
    >>> layer = kc.CodeEmbedding(1000, 64, codebooks=codebooks)

    Args:
        initializer: Optional initializer, or what else the layer takes in its
            place. Defaults to `None`: that of the layer.
        regularizer: Optional regularizer. Defaults to `None`.
        constraint: Optional constraint. Defaults to `None`.
    """

    def __init__(self, initializer=None, regularizer=None, constraint=None):
        self.initializer = initializer
        self.regularizer = keras.regularizers.get(regularizer)
        self.constraint = keras.constraints.get(constraint)

    @property
    def arguments(self):
        """Arguments of `add_weight`."""
        names = ("initializer", "regularizer", "constraint")
        return {name: getattr(self, name) for name in names}


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


def get_low_rank(identifier):
    """`LowRank` of an argument or of its serialized form, or None."""
    return None if identifier is None else get_settings(LowRank, identifier)
