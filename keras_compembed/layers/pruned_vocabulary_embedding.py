"""Embedding with exact rows for some ids; all others share."""

from collections.abc import Callable

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.stores.vocabulary import KeptRows
from keras_compembed.stores.vocabulary import share_rows
from keras_compembed.stores.vocabulary import split_ids
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrunedVocabularyEmbedding(LookupLayer):
    """Gives some ids a row each; all other ids share a few rows or a layer.

    Use it to prune a vocabulary, e.g. to the words with the highest count or
    TF-IDF, or to store frequent ids more exactly than rare ones. The list of
    kept ids takes 1.5 bits for each id. The rows may be those of another layer,
    e.g. a `QuantizedEmbedding`. A layer `rest`, e.g. a `CodeEmbedding`, holds
    the vectors of all other ids.

    Example:

    >>> layer = PrunedVocabularyEmbedding(1000, 16, num_rows=50)
    >>> vectors = layer(np.array([3, 500, 999])).numpy()
    >>> bool((vectors[1] == vectors[2]).all())
    True
    >>> rest = kc.CodeEmbedding(950, 16, 4, 16)
    >>> layer = PrunedVocabularyEmbedding(1000, 16, num_rows=50, rest=rest)

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_rows: Integer, at most `input_dim`. Ids with their own row: the
            first ids, unless `from_table` chooses others.
        num_shared_rows: Integer. Rows of the other ids. Not used with `rest`.
            Defaults to `1`.
        sharing: `"modulo"` or `"nearest"`. With `"modulo"`, other ids have
            shared row `id % num_shared_rows`. With `"nearest"`, `from_table`
            gives them the nearest row, shared or not. This takes 2 bytes for
            each id, or 4 beyond 32,768 rows. Defaults to `"modulo"`.
        rows: Optional layer with the rows, `num_rows + num_shared_rows` or
            with `rest` `num_rows`: a `LookupLayer` such as
            `keras_compembed.QuantizedEmbedding`. Defaults to `None`: a table of
            floats.
        rest: Optional layer with `input_dim - num_rows` rows, for the other ids
            in their order, such as `keras_compembed.CodeEmbedding`. Defaults to
            `None`: shared rows.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`.

    Raises:
        ValueError: If an argument is invalid, or a layer has other sizes.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        num_rows: int,
        num_shared_rows: int = 1,
        sharing: str = "modulo",
        rows: LookupLayer | None = None,
        rest: LookupLayer | None = None,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        sizes = input_dim, output_dim, num_rows, num_shared_rows
        store = KeptRows(*sizes, sharing, rows, rest)
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
        fit_rest: Callable | None = None,
        sample_weight: ArrayLike | None = None,
        **kwargs: object,
    ) -> "PrunedVocabularyEmbedding":
        """Keeps some rows of a table, and returns a built layer.

        Args:
            table, sample_weight: See `CodeEmbedding.from_table`.
            num_rows, num_shared_rows, sharing: See the layer.
            scores: Optional array `(input_dim,)`, e.g. counts or TF-IDF. The
                ids with the highest scores are kept, the lower id in a tie.
                Defaults to `None`: `sample_weight`, or without it the first
                ids, as in vocabularies sorted by frequency.
            fit_rows: Optional callable `fit_rows(table, sample_weight)` that
                makes the layer `rows`. Defaults to `None`: a table of floats.
            fit_rest: Optional callable that makes the layer `rest` alike.
                Defaults to `None`: shared rows.
            **kwargs: Further arguments of the layer.
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        check_positive_int(
            "num_rows", num_rows, maximum=len(table) - (fit_rest is not None)
        )
        even = np.ones(len(table), "float32") if weight is None else weight
        scores = check_scores("scores", even if scores is None else scores)
        require(
            len(scores) == len(table),
            "`scores` must have one number for each row of the table.",
            scores=scores.shape,
            rows=len(table),
        )
        kept, others = split_ids(scores, num_rows)
        options = {"num_shared_rows": num_shared_rows, "sharing": sharing}
        if fit_rest is None:
            rows, index, sums = share_rows(table, even, kept, others, **options)
        else:
            rows = np.asarray(table[kept], "float32")
            index = np.full(len(table), num_rows)
            index[kept] = np.arange(num_rows)
            sums, rare = (
                None if weight is None else weight[x] for x in (kept, others)
            )
            options["rest"] = fit_rest(table[others], rare)
        if fit_rows is not None:
            options["rows"] = fit_rows(rows, sums)
        layer = cls(*table.shape, num_rows, **options, **kwargs)
        layer.build()
        layer.store.take(index, rows)
        return layer
