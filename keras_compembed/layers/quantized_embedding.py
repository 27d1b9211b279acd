"""Embedding with rows of small integers."""

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.layers.options import check_reverse_table
from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import rank_of_energy
from keras_compembed.stores.integers import Integers
from keras_compembed.stores.store import LowRank
from keras_compembed.utils.saving import read_also
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_sample_weight


@read_also("QuantizedEmbedReduce", "ReversibleQuantizedEmbedding")
@keras.saving.register_keras_serializable(package="keras_compembed")
class QuantizedEmbedding(LookupLayer):
    """Turns ids into rows quantized to 8, 4 or 2 bits.

    Drop-in replacement for `keras.layers.Embedding`. Each row, or block of a
    row, has a scale:

    `E(id) = integers[id] * scales[id] * scale_unit + mean_row`

    Scales are integers as well, in units of one float for the layer. Integers
    are packed in memory, in `.keras` files and in LiteRT files. Only the rows
    of the ids in a batch are unpacked. With `rank`, rows are low-rank:
    `E(id) @ projection`.

    Rows usually come from a trained table, with `from_table` or
    `keras_compembed.compress_model`. The mean of 4 or 2-bit rows is then kept
    apart, unless that raises the error. Rows and mean are fixed, while
    `projection` is trained like any weight. With `learn_rows`, `fit` trains
    latent float rows, which each call quantizes (quantization-aware training).
    Gradients pass straight through. `kc.strip` drops the latent rows after
    training.

    For logits, and for sums or means of rows, see `CodeEmbedding`.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> layer = QuantizedEmbedding.from_table(table, bits=4, verbose=0)
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    >>> model.predict(np.array([[4, 20, 7]]), verbose=0).shape
    (1, 3, 64)

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        bits: `8`, `4` or `2`, bits of an entry. Defaults to `8`.
        block_size: Optional integer, at most the width of rows. Entries of a
            row that share a scale. Defaults to `None`: the whole row.
        rank: Optional integer, at most `output_dim`, the width of low-rank
            rows, or a tuple of it and a `keras_compembed.WeightSpec` of the
            projection. Defaults to `None`: rows are vectors.
        scale_dtype: `"int8"` or `"int16"`. Use `"int16"` for tables with row
            lengths that differ a hundredfold. Defaults to `"int8"`.
        learn_rows: Boolean, or the initializer of rows that `fit` trains;
            `True` is `"uniform"`. With `False`, a new layer has random
            integers. Defaults to `False`.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`.

    Attributes:
        rank: Integer or None.
        width: Integer, entries of a row: `rank` or `output_dim`.
        num_blocks: Integer, scales of a row.
        packed_rows: uint8 weight `(input_dim, bytes)`. Entries are two's
            complement fields of `bits` bits, the first in the lowest bits.
        scales: Integer weight `(input_dim, num_blocks)`, non-negative.
        scale_unit: float32 weight `()`.
        mean_row: float32 weight `(width,)`. Zeros without `from_table`.
        projection: Float weight `(rank, output_dim)`, or None.
        latent_rows: Float weight `(input_dim, width)` while rows are trained,
            minus `mean_row`. `kc.strip` then sets `packed_rows` and `scales`.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`. `training` matters only while rows are trained.

    Raises:
        ValueError: If an argument is invalid.

    References:
        - [Bengio, Leonard & Courville, 2013](
          https://arxiv.org/abs/1308.3432), straight-through gradients
        - [May et al., 2019](https://arxiv.org/abs/1909.01264), quantized word
          vectors compared with others of the same size
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        bits: int = 8,
        block_size: int | None = None,
        rank: int | tuple | None = None,
        scale_dtype: str = "int8",
        learn_rows: bool | str | keras.Initializer = False,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        sizes = input_dim, output_dim, bits, block_size, rank
        store = Integers(*sizes, scale_dtype, learn_rows)
        self._set_store(store, QuantizedEmbedding)

    @classmethod
    def from_table(
        cls,
        table: ArrayLike,
        bits: int = 8,
        block_size: int | None = None,
        rank: int | float | tuple | None = None,
        sample_weight: ArrayLike | None = None,
        seed: int | None = None,
        verbose: int = 1,
        reverse_table: ArrayLike | None = None,
        **kwargs: object,
    ) -> "QuantizedEmbedding":
        """Quantizes a trained table, and returns a built layer.

        Scales are chosen for the smallest error. With `rank`, the table is
        factored by its singular values. Rows and projection are fitted
        in turns.

        Args:
            table, seed, reverse_table: See `CodeEmbedding.from_table`.
            bits, block_size: See the layer.
            rank: Optional rank, see the layer, or a float between 0 and 1: the
                smallest rank with this share of the table's sum of squares.
            sample_weight: Optional array `(input_dim,)`, the weight of each
                row in the error. It matters only with `rank`.
            verbose: `0` or `1`, whether to print the relative error.
            **kwargs: Further arguments of the layer.

        Raises:
            ValueError: If `table` is not finite, or an argument is invalid.
        """
        table = check_fitted_table(table, shards=True, warn=False)
        sample_weight = check_sample_weight(sample_weight, len(table))
        if isinstance(rank, float) and 0 < rank < 1:
            # Raise errors of the layer before the rank is computed.
            options = {**kwargs, "name": "arguments"}
            cls(1, table.shape[1], bits, block_size, **options)
            rank = rank_of_energy(table, rank, sample_weight)
        check_reverse_table(table, reverse_table, kwargs)
        layer = cls(*table.shape, bits, block_size, rank, **kwargs)
        layer.build()
        tables = table, reverse_table
        for part, rows in zip(layer._list_tables(), tables, strict=False):
            error = part.store.round_table(rows, sample_weight, seed)
            if verbose:
                print(f"relative squared error {error:.3g}")
        return layer

    def integers(self, ids: tf.Tensor) -> tf.Tensor:
        """Integers of rows, int8 `(ids, width)`, for a rank-1 tensor of ids."""
        self._require_built("integers")
        return self.store.integers(ids)

    def numpy_integers(self) -> np.ndarray:
        """Integers of all rows, an int8 array `(input_dim, width)`."""
        return self.rounded_table().integers

    def rounded_table(self) -> RoundedTable:
        """All rows as arrays, a `RoundedTable`.

        While rows are learned, the rows that `kc.strip` would fix.
        """
        self._require_built("rounded_table")
        return self.store.table()

    def load_own_variables(self, store):
        # Earlier files lack the last variable, the mean row.
        last = str(len(self.store.variables) - 1)
        zeros = np.zeros(self.store.width, "float32")
        super().load_own_variables({last: zeros, **store})

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        # Arguments in earlier files.
        initializer = config.pop("rows_initializer", None)
        if initializer and config.get("learn_rows") is True:
            config["learn_rows"] = initializer
        names = ("projection_initializer", "projection_regularizer")
        projection = [config.pop(name, None) for name in names]
        if projection[0] and config.get("rank"):
            config["rank"] = LowRank(config["rank"], *projection)
        return super().from_config(config)
