"""`CodeEmbedding` with the options of `ReversibleEmbedding`."""

import keras

from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.reversible import Reversible
from keras_compembed.layers.reversible import check_reverse_table


@keras.saving.register_keras_serializable(package="keras_compembed")
class ReversibleCodeEmbedding(Reversible, CodeEmbedding):
    """A `CodeEmbedding` that also projects vectors back to ids.

    Drop-in replacement of `keras.layers.ReversibleEmbedding`, the first and
    last layer of many language models. `compress_model` puts it in its place.
    Logits are `vectors @ transpose(embeddings)`, by the layer's own table, or
    with `tie_weights=False` by a second one, `reverse_embedding`, which has
    codes and codebooks of its own.

    As in Keras, the mask of ids is set on the vectors within the call, and
    logits have none.

    Example:

    >>> layer = ReversibleCodeEmbedding(1000, 64, num_codebooks=8)
    >>> hidden = layer(np.array([[4, 20, 7]]))
    >>> layer(hidden, reverse=True).shape
    TensorShape([1, 3, 1000])

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_codebooks: Integer. Subcodes per id (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        tie_weights: Boolean. Whether reverse calls multiply by the table that
            ids are looked up in. Defaults to `True`.
        reverse_dtype: Optional string, the dtype in which logits are computed
            and returned. Defaults to `None`: computed in the variable dtype,
            and of the dtype that Keras's products of vectors and weights have.
        logit_soft_cap: Optional positive number. Logits become
            `tanh(logits / logit_soft_cap) * logit_soft_cap`. Defaults to
            `None`: they stay as they are.
        **kwargs: Further arguments of `CodeEmbedding`. A second table has the
            same composition, initializer, regularizer and constraint.
            `codes`, `codebooks` and `learn_codes` are for the first.

    Call arguments:
        inputs: Integer tensor of ids, see `CodeEmbedding`; with `reverse`,
            float tensor of vectors.
        reverse: Boolean. Whether to turn vectors into logits. Defaults to
            `False`.
        training: Boolean. Matters only while codes are learned.

    Input shape:
        Integer tensor of any shape; with `reverse`, float tensor
        `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with `reverse`,
        `(..., input_dim)`.

    Attributes:
        reverse_embedding: The `CodeEmbedding` of reverse calls, or None if
            weights are tied.

    Raises:
        ValueError: if an argument is of a wrong kind or out of range.

    References:
        - [Press & Wolf, 2017](https://arxiv.org/abs/1608.05859)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_codebooks=32,
        codebook_size=16,
        tie_weights=True,
        reverse_dtype=None,
        logit_soft_cap=None,
        **kwargs,
    ):
        # First, as codes given to `super` build the layer.
        self._set_reverse_options(tie_weights, reverse_dtype, logit_soft_cap)
        super().__init__(
            input_dim, output_dim, num_codebooks, codebook_size, **kwargs
        )

    def _start(self, codebooks):
        self.reverse_embedding = None
        if not self.tie_weights:
            self.reverse_embedding = CodeEmbedding(
                self.input_dim,
                self.output_dim,
                self.num_codebooks,
                self.codebook_size,
                self.composition,
                codebooks_initializer=self.codebooks_initializer,
                codebooks_regularizer=self.codebooks_regularizer,
                codebooks_constraint=self.codebooks_constraint,
                # Else both begin with the same codes.
                seed=None if self.seed is None else self.seed + 1,
                name="reverse_embedding",
                dtype=self.dtype_policy,
                trainable=self.trainable,
            )
        super()._start(codebooks)

    @classmethod
    def from_table(
        cls,
        table,
        num_codebooks=32,
        codebook_size=16,
        composition=None,
        learner=None,
        sample_weight=None,
        seed=None,
        verbose=1,
        reverse_table=None,
        **kwargs,
    ):
        """Learns codes for trained tables and returns a layer holding them.

        Args:
            table: Array of shape `(input_dim, output_dim)`.
            num_codebooks: Integer. Defaults to `32`.
            codebook_size: Integer. Defaults to `16`.
            composition: Same as in `CodeEmbedding.from_table`.
            learner: Same as in `CodeEmbedding.from_table`, for one table
                after the other.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, in both tables.
            seed: Optional integer.
            verbose: `0` or `1`, whether to show progress.
            reverse_table: Optional array of the table's shape, for logits of
                weights that are not tied. Defaults to `None`.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `ReversibleCodeEmbedding`.

        Raises:
            ValueError: if a table is not a finite matrix, the tables differ
                in shape, or the learner has another code shape.
        """
        table, reverse_table, tie_weights = check_reverse_table(
            table, reverse_table, kwargs.pop("tie_weights", None)
        )
        learning = {
            "num_codebooks": num_codebooks,
            "codebook_size": codebook_size,
            "composition": composition,
            "learner": learner,
            "sample_weight": sample_weight,
            "seed": seed,
            "verbose": verbose,
        }
        layer = super().from_table(
            table, **learning, tie_weights=tie_weights, **kwargs
        )
        if not tie_weights:
            learned = CodeEmbedding.from_table(
                reverse_table, **learning, dtype=layer.dtype_policy
            )
            layer.reverse_embedding.set_weights(learned.get_weights())
        return layer

    def reset_codebooks(self):
        super().reset_codebooks()
        if self.reverse_embedding is not None:
            self.reverse_embedding.reset_codebooks()
