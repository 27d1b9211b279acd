"""Embedding with rows for some ids, and a few rows for all others."""

from collections.abc import Callable

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.stores.vocabulary import KeptRows
from keras_compembed.stores.vocabulary import choose_rows
from keras_compembed.stores.vocabulary import distances
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrunedVocabularyEmbedding(LookupLayer):
    """Gives some ids a row each; all other ids share a few rows.

    Use it to prune a vocabulary, e.g. to the words with the highest count or
    TF-IDF. The list of kept ids takes 1.5 bits for each id. The rows
    may be those of another layer, e.g. a `QuantizedEmbedding`.

    Example:

    >>> layer = PrunedVocabularyEmbedding(1000, 16, num_rows=50)
    >>> vectors = layer(np.array([3, 500, 999])).numpy()
    >>> bool((vectors[1] == vectors[2]).all())
    True

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_rows: Integer, at most `input_dim`. Ids with their own row: the
            first ids, unless `from_table` chooses others.
        num_shared_rows: Integer. Rows of the other ids. Defaults to `1`.
        sharing: `"modulo"` or `"nearest"`. With `"modulo"`, other ids have
            shared row `id % num_shared_rows`. With `"nearest"`, `from_table`
            gives them the nearest row, shared or not. This takes 2 bytes for
            each id, or 4 beyond 32,768 rows. Defaults to `"modulo"`.
        rows: Optional layer with `num_rows + num_shared_rows` rows, a
            `LookupLayer` such as `keras_compembed.QuantizedEmbedding`.
            Defaults to `None`: a table of floats.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`.

    Raises:
        ValueError: If an argument is invalid, or `rows` is too small.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        num_rows: int,
        num_shared_rows: int = 1,
        sharing: str = "modulo",
        rows: LookupLayer | None = None,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        sizes = input_dim, output_dim, num_rows, num_shared_rows
        store = KeptRows(*sizes, sharing, rows)
        self._set_store(store, PrunedVocabularyEmbedding)

    @classmethod
    def from_table(
        cls,
        table: ArrayLike,
        num_rows: int,
        num_shared_rows: int = 1,
        sharing: str = "modulo",
        scores: ArrayLike | None = None,
        fit_rows: Callable | None = None,
        sample_weight: ArrayLike | None = None,
        **kwargs: object,
    ) -> "PrunedVocabularyEmbedding":
        """Keeps some rows of a table, and returns a built layer.

        Args:
            table, sample_weight: See `CodeEmbedding.from_table`.
            num_rows, num_shared_rows, sharing: See the layer.
            scores: Optional array `(input_dim,)`, e.g. counts or TF-IDF. The
                ids with the highest scores are kept, the lower id in a tie.
                Defaults to `None`: the ids with rows furthest from the mean
                row, by `sample_weight`.
            fit_rows: Optional callable `fit_rows(table, sample_weight)` that
                makes the layer `rows`. Defaults to `None`: a table of floats.
            **kwargs: Further arguments of the layer.
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        check_positive_int("num_rows", num_rows, maximum=len(table))
        if weight is None:
            weight = np.ones(len(table), "float32")
        if scores is None:
            scores = distances(table, weight)
        scores = check_scores("scores", scores)
        require(
            len(scores) == len(table),
            "`scores` must have one number for each row of the table.",
            scores=scores.shape,
            rows=len(table),
        )
        settings = num_rows, num_shared_rows, sharing
        rows, index, sums = choose_rows(table, weight, scores, *settings)
        inner = None if fit_rows is None else fit_rows(rows, sums)
        layer = cls(*table.shape, *settings, inner, **kwargs)
        layer.build()
        layer.store.take(index, rows)
        return layer
