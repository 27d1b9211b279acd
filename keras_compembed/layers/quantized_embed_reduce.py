"""Embedding of rounded rows that are summed or averaged."""

import keras

from keras_compembed.layers.combiner import Combiner
from keras_compembed.layers.embed_reduce import EmbedReduce
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding


@keras.saving.register_keras_serializable(package="keras_compembed")
class QuantizedEmbedReduce(EmbedReduce, QuantizedEmbedding):
    """A `QuantizedEmbedding` that sums or averages the vectors of each row.

    Drop-in replacement of `keras_rs.layers.EmbedReduce`, in less time than
    pooling behind a `QuantizedEmbedding`: integers are summed with their
    scales as weights, and the sums are multiplied by the projection.

    Example:

    >>> layer = QuantizedEmbedReduce(1000, 64, bits=4, combiner="mean")
    >>> layer(np.array([[4, 20, 7], [1, 1, 0]])).shape
    TensorShape([2, 64])

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        bits: `8`, `4` or `2`. Bits of a number. Defaults to `8`.
        block_size: Optional integer, see `QuantizedEmbedding`.
        rank: Optional integer, see `QuantizedEmbedding`.
        combiner: `"mean"`, `"sum"` or `"sqrtn"`, how the vectors of a row are
            combined: their weighted sum, divided by the sum of the weights,
            by nothing, or by the root of the sum of their squares. Defaults
            to `"mean"`.
        empty_value: Number, what `"mean"` and `"sqrtn"` give for a row without
            ids, or whose weights add up to 0. Defaults to `0.0`.
            `GlobalAveragePooling1D` gives `float("nan")`.
        **kwargs: Further arguments of `QuantizedEmbedding`. Ids that
            `mask_zero` masks do not count.

    Call arguments:
        inputs: Integer tensor of ids `(batch_size, length)`.
        weights: Optional float tensor, see `CodeEmbedReduce`.
        mask: Optional boolean tensor, see `CodeEmbedReduce`.
        reverse: Boolean. Whether to turn float vectors into logits, see
            `QuantizedEmbedding`. Defaults to `False`.
        training: Boolean. Matters only for `negative_weight`.

    Input shape:
        Integer tensor `(batch_size, length)` or `(batch_size,)`; with
        `reverse`, float tensor `(..., output_dim)`.

    Output shape:
        `(batch_size, output_dim)`; with `reverse`, `(..., input_dim)`. Sums
        are computed in the variable dtype, or float32 if that is wider, and
        cast to the compute dtype. They have no mask.

    Raises:
        ValueError: if an argument or the shape of an input is refused, see
            `QuantizedEmbedding`. Weights below 0 with `"sqrtn"` raise in the
            run.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        bits=8,
        block_size=None,
        rank=None,
        combiner="mean",
        empty_value=0.0,
        **kwargs,
    ):
        super().__init__(
            input_dim, output_dim, bits, block_size, rank, **kwargs
        )
        self._combiner = Combiner(combiner, empty_value, self.mask_zero)

    def call(
        self, inputs, weights=None, mask=None, reverse=False, training=False
    ):
        if reverse and self._learns(training):
            self._make_room()
        return super().call(inputs, weights, mask, reverse, training)

    def _sums_of_groups(self, groups, training):
        if not self._learns(training):
            return self.sum_rows(groups.ids, groups.weights)
        return self._project(
            self._latents.sum_rows(groups.ids, groups.weights, training=True)
        )
