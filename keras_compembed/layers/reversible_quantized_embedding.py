"""`QuantizedEmbedding` with the options of `ReversibleEmbedding`."""

import keras

from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.layers.reversible import Reversible
from keras_compembed.layers.reversible import check_reverse_table


@keras.saving.register_keras_serializable(package="keras_compembed")
class ReversibleQuantizedEmbedding(Reversible, QuantizedEmbedding):
    """A `QuantizedEmbedding` that also projects vectors back to ids.

    Drop-in replacement of `keras.layers.ReversibleEmbedding`, the first and
    last layer of many language models. `compress_model` puts it in its place.
    Logits are `vectors @ transpose(embeddings)`, by the layer's own table, or
    with `tie_weights=False` by a second one, `reverse_embedding`, which is
    rounded like the first.

    As in Keras, the mask of ids is set on the vectors within the call, and
    logits have none.

    Example:

    >>> layer = ReversibleQuantizedEmbedding(1000, 64, bits=4)
    >>> hidden = layer(np.array([[4, 20, 7]]))
    >>> layer(hidden, reverse=True).shape
    TensorShape([1, 3, 1000])

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        bits: `8`, `4` or `2`. Bits of a number. Defaults to `8`.
        block_size: Optional integer, see `QuantizedEmbedding`.
        rank: Optional integer, see `QuantizedEmbedding`.
        tie_weights: Boolean. Whether reverse calls multiply by the table that
            ids are looked up in. Defaults to `True`.
        reverse_dtype: Optional string, the dtype in which logits are computed
            and returned. Defaults to `None`: computed in the variable dtype,
            and of the dtype that Keras's products of vectors and weights have.
        logit_soft_cap: Optional positive number. Logits become
            `tanh(logits / logit_soft_cap) * logit_soft_cap`. Defaults to
            `None`: they stay as they are.
        **kwargs: Further arguments of `QuantizedEmbedding`, of both tables.

    Call arguments:
        inputs: Integer tensor of ids, see `QuantizedEmbedding`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to turn vectors into logits. Defaults to
            `False`.
        training: Boolean. Matters only while rows are trained.

    Input shape:
        Integer tensor of any shape; with `reverse`, float tensor
        `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with `reverse`,
        `(..., input_dim)`.

    Attributes:
        reverse_embedding: The `QuantizedEmbedding` of reverse calls, or None
            if weights are tied.

    Raises:
        ValueError: if an argument is of a wrong kind or out of range.

    References:
        - [Press & Wolf, 2017](https://arxiv.org/abs/1608.05859)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        bits=8,
        block_size=None,
        rank=None,
        tie_weights=True,
        reverse_dtype=None,
        logit_soft_cap=None,
        **kwargs,
    ):
        super().__init__(
            input_dim, output_dim, bits, block_size, rank, **kwargs
        )
        self._set_reverse_options(tie_weights, reverse_dtype, logit_soft_cap)
        self.reverse_embedding = None
        if not tie_weights:
            self.reverse_embedding = QuantizedEmbedding(
                input_dim,
                output_dim,
                bits,
                block_size,
                rank,
                scale_dtype=self.scale_dtype,
                learn_rows=self.learn_rows,
                rows_initializer=self.rows_initializer,
                projection_initializer=self.projection_initializer,
                projection_regularizer=self.projection_regularizer,
                # Else both begin with the same rows.
                seed=None if self.seed is None else self.seed + 1,
                name="reverse_embedding",
                dtype=self.dtype_policy,
                trainable=self.trainable,
            )

    @classmethod
    def from_table(
        cls,
        table,
        bits=8,
        block_size=None,
        rank=None,
        sample_weight=None,
        seed=None,
        verbose=1,
        reverse_table=None,
        **kwargs,
    ):
        """Rounds trained tables and returns a layer holding them.

        Args:
            table: Array of shape `(input_dim, output_dim)`.
            bits: `8`, `4` or `2`. Defaults to `8`.
            block_size: Optional integer, see `QuantizedEmbedding`.
            rank: Optional integer, or share of the energy of the first table,
                see `QuantizedEmbedding.from_table`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, in both tables.
            seed: Optional integer.
            verbose: `0` or `1`, whether to say how much was lost.
            reverse_table: Optional array of the table's shape, for logits of
                weights that are not tied. Defaults to `None`.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `ReversibleQuantizedEmbedding`.

        Raises:
            ValueError: if a table is not a finite matrix, or the tables
                differ in shape.
        """
        table, reverse_table, tie_weights = check_reverse_table(
            table, reverse_table, kwargs.pop("tie_weights", None)
        )
        layer = super().from_table(
            table,
            bits,
            block_size,
            rank,
            sample_weight,
            seed,
            verbose,
            tie_weights=tie_weights,
            **kwargs,
        )
        if not tie_weights:
            layer.reverse_embedding._round_table(
                reverse_table, sample_weight, seed, verbose
            )
        return layer

    def _make_room(self):
        (self.reverse_embedding or self)._latents.grow()
