"""Embedding from anchors whose vectors are summed or averaged."""

import keras

from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.combiner import Combiner
from keras_compembed.layers.embed_reduce import EmbedReduce


@keras.saving.register_keras_serializable(package="keras_compembed")
class ANTEmbedReduce(EmbedReduce, ANTEmbedding):
    """An `ANTEmbedding` that sums or averages the vectors of each row of ids.

    Drop-in replacement of `keras_rs.layers.EmbedReduce`, in less time than
    pooling behind an `ANTEmbedding`: weights of anchors are added up before
    they meet the anchors.

    Example:

    >>> layer = ANTEmbedReduce(1000, 64, num_anchors=20, combiner="mean")
    >>> layer(np.array([[4, 20, 7], [1, 1, 0]])).shape
    TensorShape([2, 64])

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_anchors: Integer, at most `input_dim`. Rows of A, of all sets
            together. Defaults to `100`.
        combiner: `"mean"`, `"sum"` or `"sqrtn"`, how the vectors of a row are
            combined: their weighted sum, divided by the sum of the weights,
            by nothing, or by the root of the sum of their squares. Defaults
            to `"mean"`.
        empty_value: Number, what `"mean"` and `"sqrtn"` give for a row without
            ids, or whose weights add up to 0. Defaults to `0.0`.
            `GlobalAveragePooling1D` gives `float("nan")`.
        **kwargs: Further arguments of `ANTEmbedding`. Ids that `mask_zero`
            masks do not count.

    Call arguments:
        inputs: Integer tensor of ids `(batch_size, length)`.
        weights: Optional float tensor, see `CodeEmbedReduce`.
        mask: Optional boolean tensor, see `CodeEmbedReduce`.
        reverse: Boolean. Whether to turn float vectors into logits, see
            `ANTEmbedding`. Defaults to `False`.
        training: Boolean. Matters only for `negative_weight`.

    Input shape:
        Integer tensor `(batch_size, length)` or `(batch_size,)`; with
        `reverse`, float tensor `(..., output_dim)`.

    Output shape:
        `(batch_size, output_dim)`; with `reverse`, `(..., input_dim)`. Sums
        have no mask.

    Raises:
        ValueError: if an argument or the shape of an input is refused, see
            `ANTEmbedding`. Negative weights with `"sqrtn"` raise in the run.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_anchors=100,
        combiner="mean",
        empty_value=0.0,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, num_anchors, **kwargs)
        self._combiner = Combiner(combiner, empty_value, self.mask_zero)

    def _sums_of_groups(self, groups, training):
        if not self._separates(training):
            return self.sum_rows(groups.ids, groups.weights)
        return self.sum_rows(groups.ids, groups.weights, separates=True)
