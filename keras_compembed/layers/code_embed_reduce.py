"""Embedding from codes whose vectors are summed or averaged."""

import keras

from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.combiner import Combiner
from keras_compembed.layers.embed_reduce import EmbedReduce


@keras.saving.register_keras_serializable(package="keras_compembed")
class CodeEmbedReduce(EmbedReduce, CodeEmbedding):
    """A `CodeEmbedding` that sums or averages the vectors of each row of ids.

    Drop-in replacement of `keras_rs.layers.EmbedReduce`, at a fraction of the
    time of pooling behind a `CodeEmbedding`: it counts how often each codeword
    is named, by weights, and multiplies the counts by the codebooks once,

    `sum_t w_t E(id_t) = sum_m,k n[m, k] codebooks[m, k]`

    forward and backward. While codes are learned from nothing, with
    `learn_codes="softmax"` or `"nearest"`, a training step needs gradients of
    each id, and composes vectors; so do compositions that are not linear, and
    large `codebook_size` with few ids.

    Example:

    >>> layer = CodeEmbedReduce(1000, 64, num_codebooks=8, combiner="mean")
    >>> layer(np.array([[4, 20, 7], [1, 1, 0]])).shape
    TensorShape([2, 64])

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_codebooks: Integer. Subcodes per id (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        combiner: `"mean"`, `"sum"` or `"sqrtn"`, how the vectors of a row are
            combined: their weighted sum, divided by the sum of the weights,
            by nothing, or by the root of the sum of their squares. Defaults
            to `"mean"`.
        empty_value: Number, what `"mean"` and `"sqrtn"` give for a row without
            ids, or whose weights add up to 0. Defaults to `0.0`.
            `GlobalAveragePooling1D` gives `float("nan")`.
        **kwargs: Further arguments of `CodeEmbedding`. Ids that `mask_zero`
            masks do not count.

    Call arguments:
        inputs: Integer tensor of ids `(batch_size, length)`, which may be
            ragged or sparse: what a sparse tensor does not hold does not
            count. Vectors of ids of rank 1 are not combined, nor masked.
        weights: Optional float tensor of the shape of `inputs`, or of its
            first axis: the weight of each id, or of each row. As in keras-rs,
            weights of rows are divided by once, so that `"mean"` is then a
            sum. For ids of rank 1, only `"sum"` multiplies by weights.
        mask: Optional boolean tensor of the shape of `inputs`, false for ids
            that do not count.
        reverse: Boolean. Whether to turn float vectors into logits, see
            `CodeEmbedding`. Defaults to `False`.
        training: Boolean. Matters only while codes are learned.

    Input shape:
        Integer tensor `(batch_size, length)` or `(batch_size,)`; with
        `reverse`, float tensor `(..., output_dim)`.

    Output shape:
        `(batch_size, output_dim)`; with `reverse`, `(..., input_dim)`. Sums
        are computed in the variable dtype, or float32 if that is wider, and
        cast to the compute dtype. They have no mask.

    Raises:
        ValueError: if an argument or the shape of an input is refused, see
            `CodeEmbedding`. Negative weights with `"sqrtn"` raise in the run.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_codebooks=32,
        codebook_size=16,
        combiner="mean",
        empty_value=0.0,
        **kwargs,
    ):
        # First, as codes given to `super` build the layer.
        self._combiner = Combiner(
            combiner, empty_value, kwargs.get("mask_zero", False)
        )
        super().__init__(
            input_dim, output_dim, num_codebooks, codebook_size, **kwargs
        )

    def _sums_of_groups(self, groups, training):
        if not self._learns(training):
            return self.sum_rows(groups.ids, groups.weights)
        sums, losses = self.learn_codes.step_sums(
            groups.ids, groups.weights, groups.counts
        )
        for loss in losses:
            self.add_replica_loss(loss)
        return sums
