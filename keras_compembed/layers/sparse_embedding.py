"""Embedding of which only some numbers are not zero."""

import keras
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.stores.pruned import PrunedNumbers
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table


@keras.saving.register_keras_serializable(package="keras_compembed")
class SparseEmbedding(LookupLayer):
    """Holds the numbers of a table that are not zero, and where they are.

    What magnitude pruning leaves of a table. Each number takes a byte for its
    column beside itself, each row 1.25 bytes for its length; rows of more
    than 255 columns are several parts, each with a length of its own.
    Training moves the numbers, and no others become different from 0. A new
    layer has random numbers in random places, as many in each row.

    Example:

    >>> layer = SparseEmbedding(1000, 64, sparsity=0.9)
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 64])
    >>> layer.num_nonzeros
    6400

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        sparsity: Number from 0 to below 1, the share of zeros. Defaults to
            `0.9`.
        bits: `None` for numbers that are floats, or `8` for int8, times a
            float of each column; training then moves only these. Defaults
            to `None`.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`.

    Attributes:
        num_nonzeros: Integer, numbers held.
        num_parts: Integer, parts of a row.
        part_width: Integer, columns of a part.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`.

    References:
        - [Zhu & Gupta, 2017](https://arxiv.org/abs/1710.01878)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        sparsity: float = 0.9,
        bits: int | None = None,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        store = PrunedNumbers(input_dim, output_dim, sparsity, bits)
        self._set_store(store, SparseEmbedding)

    @classmethod
    def from_table(
        cls,
        table: ArrayLike,
        sparsity: float = 0.9,
        bits: int | None = None,
        sample_weight: ArrayLike | None = None,
        **kwargs: object,
    ) -> "SparseEmbedding":
        """Returns a built layer with the numbers furthest from 0 of a table.

        Of a table that was pruned while it was trained, these are the ones
        that are not 0.

        Args:
            table: Array `(input_dim, output_dim)`.
            sparsity, bits: See the layer.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts: then numbers are compared times its root.
            **kwargs: Further arguments of the layer.
        """
        table = check_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        layer = cls(*table.shape, sparsity, bits, **kwargs)
        layer.build()
        layer.store.take_largest(table, weight)
        return layer
