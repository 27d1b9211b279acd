"""Tables of which only the largest numbers are held."""

import functools

from keras_compembed.layers.sparse_embedding import SparseEmbedding
from keras_compembed.layers.sparse_embedding import count_nonzeros
from keras_compembed.layers.sparse_embedding import count_parts
from keras_compembed.layers.sparse_embedding import count_place_bytes
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_sparsity

# Places are int32.
_MOST_NONZEROS = 2**31 - 1
# Of a number in a file, by `quantize`.
_BYTES = {"float16": 2, "int8": 1}


class Pruned(Method):
    """The numbers of a table that are furthest from 0.

    See `keras_compembed.SparseEmbedding`. Prune the table while the
    model is trained by `keras_compembed.compression.MagnitudePruning`, or at
    once by this alone.

    Example:

    >>> method = Pruned(0.95)
    >>> method.name
    'pruned 95%'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    76758

    Args:
        sparsity: Number from 0 to below 1, the share of zeros. Defaults to
            `0.9`.
        bits: `None` or `8`, of the numbers in the layer. Defaults to `None`:
            floats, which files round by `quantize`.

    Raises:
        ValueError: if a number is out of range.
    """

    rows = SparseEmbedding

    def __init__(self, sparsity=0.9, bits=None):
        self.sparsity = check_sparsity("sparsity", sparsity)
        self.bits = check_choice("bits", bits, (None, 8))

    @property
    def name(self):
        name = f"pruned {100 * self.sparsity:.4g}%"
        return name if self.bits is None else f"{name} int8"

    def start(self, seed=None, verbose=0):
        options = {"sparsity": self.sparsity, "bits": self.bits, "seed": seed}
        from_table = functools.partial(SparseEmbedding.from_table, **options)
        return Fit(options, from_table)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        size = 1 if self.bits == 8 else _BYTES.get(quantize, 4)
        # The last number is of no row.
        numbers = 1 + count_nonzeros(input_dim, output_dim, self.sparsity)
        total = count_place_bytes(input_dim * count_parts(output_dim))
        total += numbers * (1 + size)
        if size < 4:
            total += output_dim * (2 if quantize == "float16" else 4)
        return total

    def reason_against(self, input_dim, output_dim):
        number = count_nonzeros(input_dim, output_dim, self.sparsity)
        if number > _MOST_NONZEROS:
            return f"{number:,} numbers are more than 32 bits can count"
        return None
