"""Quantized tables."""

import functools

from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.rounding.rounded_table import name_of_rows
from keras_compembed.stores.integers import Integers
from keras_compembed.stores.integers import litert_bytes
from keras_compembed.utils.validation import check_positive_int


class Quantized(Method):
    """Stores rows as int8, int4 or int2 with scales, optionally low-rank.

    See `keras_compembed.QuantizedEmbedding`.

    Example:

    >>> method = Quantized(4, rank=16)
    >>> method.name
    'int4 rank 16'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    91088

    Args:
        bits: `8`, `4` or `2`. Bits per value. Defaults to `4`.
        block_size: Optional integer. The number of values in a row that share a
            scale. Defaults to `None`: the whole row.
        rank: Optional integer. Stores low-rank rows of this width, and a matrix
            that maps them to vectors. Defaults to `None`.
        learn_rows: Boolean. Whether `fit` trains rows. Defaults to `False`.
        scale_dtype: `"int8"` or `"int16"`, the dtype of the scales. Defaults to
            `"int8"`.

    Raises:
        ValueError: If an argument is out of range.
    """

    rows = QuantizedEmbedding
    combines = reverses = True
    is_by_row = True

    def __init__(
        self,
        bits: int = 4,
        block_size: int | None = None,
        rank: int | None = None,
        learn_rows: bool = False,
        scale_dtype: str = "int8",
    ):
        check_positive_int("rank", rank, optional=True)
        self._options = {
            "bits": bits,
            "block_size": block_size,
            "rank": rank,
            "learn_rows": learn_rows,
            "scale_dtype": scale_dtype,
        }
        # Checks the options, for a table of sufficient width.
        Integers(1, rank or block_size or 1, **self._options)
        vars(self).update(self._options)

    @property
    def name(self):
        return name_of_rows(self.bits, self.block_size, self.rank)

    def start(self, seed=None, verbose=0):
        fit = {"seed": seed, "verbose": verbose, **self._options}
        from_table = functools.partial(QuantizedEmbedding.from_table, **fit)
        return Fit(self._options, from_table)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        shape = input_dim, output_dim
        settings = self.bits, self.block_size, self.rank, self.scale_dtype
        return litert_bytes(shape, *settings, quantize)

    def tuned(self):
        return Quantized(**{**self._options, "learn_rows": True})

    def folded(self):
        return None if self.rank is None else self

    def reason_against(self, input_dim, output_dim):
        for name in ("rank", "block_size"):
            if (getattr(self, name) or 0) > output_dim:
                return f"it has fewer columns than {name}={getattr(self, name)}"
        return None
