"""How layers that turn ids into vectors turn vectors into logits."""

import dataclasses

import keras
import tensorflow as tf

from keras_compembed.utils.saving import Settings
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
@dataclasses.dataclass(frozen=True)
class Reverse(Settings):
    """Options of calls with `reverse=True`, as in `ReversibleEmbedding`.

    A layer with these options also sets the mask of ids on the vectors within
    the call, as `keras.layers.ReversibleEmbedding` does.

    Example:

    >>> layer = kc.CodeEmbedding(1000, 64, reverse=Reverse(logit_soft_cap=30))
    >>> hidden = layer(np.array([[4, 20, 7]]))
    >>> layer(hidden, reverse=True).shape
    TensorShape([1, 3, 1000])

    Args:
        tie_weights: Boolean. Whether reverse calls multiply by the table that
            ids are looked up in. Otherwise the layer has a second table of
            the same kind, `reverse_embedding`. Defaults to `True`.
        dtype: Optional string, the dtype in which logits are computed and
            returned. Defaults to `None`: computed in the variable dtype, and
            returned in the dtype of a product of vectors and weights.
        logit_soft_cap: Optional positive number. Logits become
            `tanh(logits / logit_soft_cap) * logit_soft_cap`. Defaults to
            `None`: they stay as they are.

    References:
        - [Press & Wolf, 2017](https://arxiv.org/abs/1608.05859)
    """

    tie_weights: bool = True
    dtype: str | None = None
    logit_soft_cap: float | None = None

    def __post_init__(self):
        check_boolean("tie_weights", self.tie_weights)
        if self.dtype is not None:
            name = keras.backend.standardize_dtype(self.dtype)
            require(
                keras.backend.is_float_dtype(name),
                "`dtype` of logits must be None or a floating dtype.",
                dtype=self.dtype,
            )
            object.__setattr__(self, "dtype", name)
        if self.logit_soft_cap is not None:
            check_positive_number("logit_soft_cap", self.logit_soft_cap)

    def cap(self, logits):
        """Logits within the soft cap."""
        cap = self.logit_soft_cap
        return logits if cap is None else tf.tanh(logits / cap) * cap


def get_reverse(identifier):
    """`Reverse` of an argument or of its serialized form, or None."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        identifier is None or isinstance(identifier, Reverse),
        "`reverse` must be None or a `keras_compembed.Reverse`.",
        reverse=identifier,
    )
    return identifier


def check_reverse_table(table, reverse_table, arguments):
    """Checks the `reverse` of a layer that is made of one table or of two."""
    reverse = get_reverse(arguments.get("reverse"))
    if reverse_table is None:
        require(
            reverse is None or reverse.tie_weights,
            "`reverse_table` must be given where weights are not tied.",
            reverse=reverse,
        )
        return
    require(
        reverse is None or not reverse.tie_weights,
        "`reverse_table` must be None where weights are tied.",
        reverse=reverse,
    )
    shape = check_table(reverse_table, "reverse_table").shape
    require(
        shape == table.shape,
        f"`reverse_table` must have the shape of `table`, {table.shape}.",
        shape=shape,
    )
    arguments["reverse"] = reverse or Reverse(tie_weights=False)
