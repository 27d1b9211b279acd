"""Tables with the largest values only."""

import functools

from keras_compembed.layers.sparse_embedding import SparseEmbedding
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.stores.pruned import PrunedNumbers
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_sparsity

# Offsets are int32.
_MOST_NONZEROS = 2**31 - 1


class Pruned(Method):
    """Stores the values of a table furthest from 0; all others become 0.

    Prune the table during training with
    `keras_compembed.compression.MagnitudePruning` first, or use this method
    alone. See `keras_compembed.SparseEmbedding`.

    Example:

    >>> method = Pruned(0.95)
    >>> method.name
    'pruned 95%'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    76758

    Args:
        sparsity: Number from 0 to below 1. The share of zeros. Defaults to
            `0.9`.
        bits: `None` or `8`. Bits per stored value in the layer. Defaults to
            `None`: floats, which exported files quantize by `quantize`.

    Raises:
        ValueError: If an argument is out of range.
    """

    rows = SparseEmbedding

    def __init__(self, sparsity: float = 0.9, bits: int | None = None):
        self.sparsity = check_sparsity("sparsity", sparsity)
        self.bits = check_choice("bits", bits, (None, 8))

    @property
    def name(self):
        name = f"pruned {100 * self.sparsity:.4g}%"
        return name if self.bits is None else f"{name} int8"

    def start(self, seed=None, verbose=0):
        options = {"sparsity": self.sparsity, "bits": self.bits}
        from_table = functools.partial(SparseEmbedding.from_table, **options)
        return Fit(options, from_table)

    def _store(self, *shape):
        return PrunedNumbers(*shape, self.sparsity, self.bits)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        return self._store(input_dim, output_dim).litert_bytes(quantize)

    def reason_against(self, input_dim, output_dim):
        number = self._store(input_dim, output_dim).num_nonzeros
        if number > _MOST_NONZEROS:
            return f"{number:,} values are too many for 32-bit offsets"
        return None
