"""Embedding with a table that is mostly zeros."""

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
    """Turns ids into sparse rows, as magnitude pruning makes them.

    Only entries that are not 0 are stored. Each takes a byte for its column,
    and each row 1.25 bytes for its length. Rows with more than 255 columns are
    stored in parts, each with a length. Training changes the stored entries;
    all others stay 0. A new layer has random entries, as many in each row.

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
        bits: `None` for float entries, or `8` for int8 entries with a float
            scale for each column. With `8`, only the scales are trained.
            Defaults to `None`.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`.

    Attributes:
        num_nonzeros: Integer, stored entries.
        num_parts: Integer, parts of a row.
        part_width: Integer, columns of a part.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`.

    Raises:
        ValueError: If an argument is invalid.

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
        """Keeps the largest entries of a table, and returns a built layer.

        For a table that was pruned in training, use its share of zeros.

        Args:
            table: Array `(input_dim, output_dim)`.
            sparsity, bits: See the layer.
            sample_weight: Optional array `(input_dim,)`, the weight of each
                row. Entries are multiplied by its root before comparison.
            **kwargs: Further arguments of the layer.
        """
        table = check_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        layer = cls(*table.shape, sparsity, bits, **kwargs)
        layer.build()
        layer.store.take_largest(table, weight)
        return layer
