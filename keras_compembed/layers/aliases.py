"""Names that code of keras-rs and Keras calls for."""

import keras

from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.layers.reverse import Reverse

_register = keras.saving.register_keras_serializable(package="keras_compembed")


class _Pooled:
    def __init__(self, *args, combiner="mean", **kwargs):
        super().__init__(*args, combiner=combiner, **kwargs)


class _Reversible:
    def __init__(self, *args, reverse=None, **kwargs):
        reverse = reverse or _take_options(kwargs)
        super().__init__(*args, reverse=reverse, **kwargs)

    @classmethod
    def from_table(cls, *args, reverse=None, **kwargs):
        if reverse is None:
            is_tied = kwargs.get("reverse_table") is None
            reverse = _take_options({"tie_weights": is_tied, **kwargs})
            _take_options(kwargs)
        return super().from_table(*args, reverse=reverse, **kwargs)


def _take_options(arguments):
    """The `Reverse` of arguments of `ReversibleEmbedding`, taken out."""
    tie_weights = arguments.pop("tie_weights", True)
    dtype = arguments.pop("reverse_dtype", None)
    return Reverse(tie_weights, dtype, arguments.pop("logit_soft_cap", None))


@_register
class CodeEmbedReduce(_Pooled, CodeEmbedding):
    """`CodeEmbedding(combiner="mean")`, as `keras_rs.layers.EmbedReduce`."""


@_register
class QuantizedEmbedReduce(_Pooled, QuantizedEmbedding):
    """`QuantizedEmbedding` as `keras_rs.layers.EmbedReduce`."""


@_register
class ANTEmbedReduce(_Pooled, ANTEmbedding):
    """`ANTEmbedding(combiner="mean")`, as `keras_rs.layers.EmbedReduce`."""


@_register
class ReversibleCodeEmbedding(_Reversible, CodeEmbedding):
    """`CodeEmbedding(reverse=...)`, as `keras.layers.ReversibleEmbedding`."""


@_register
class ReversibleQuantizedEmbedding(_Reversible, QuantizedEmbedding):
    """`QuantizedEmbedding` as `keras.layers.ReversibleEmbedding`."""
