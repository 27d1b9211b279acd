"""Tables with rows for some ids only."""

from numpy.typing import ArrayLike

from keras_compembed.layers.pruned_vocabulary_embedding import (
    PrunedVocabularyEmbedding,
)
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.methods.method import check_method
from keras_compembed.stores.vocabulary import SHARING
from keras_compembed.stores.vocabulary import count_place_bytes
from keras_compembed.stores.vocabulary import count_table_bytes
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_scores


class Vocabulary(Method):
    """Keeps the rows of some ids; all other ids share a few rows.

    See `keras_compembed.PrunedVocabularyEmbedding`.

    Example:

    >>> method = Vocabulary(2_000, num_shared_rows=50)
    >>> method.name
    'vocabulary of 2000, 50 shared'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    133340

    Args:
        num_rows: Integer. The number of ids that keep their rows.
        num_shared_rows: Integer. Rows of all other ids. Defaults to `1`.
        sharing: `"modulo"` or `"nearest"`. Defaults to `"modulo"`.
        scores: Optional array `(input_dim,)`, such as counts or TF-IDF. Ids
            with the highest scores keep their rows. Defaults to `None`: ids
            with rows furthest from the mean row.
        rows: Optional `Method` to store the rows. Defaults to `None`: floats,
            which exported files quantize by `quantize`.

    Raises:
        ValueError: If an argument is out of range.
    """

    rows = PrunedVocabularyEmbedding

    def __init__(
        self,
        num_rows: int,
        num_shared_rows: int = 1,
        sharing: str = "modulo",
        scores: ArrayLike | None = None,
        rows: Method | None = None,
    ):
        self._options = {
            "num_rows": check_positive_int("num_rows", num_rows),
            "num_shared_rows": check_positive_int(
                "num_shared_rows", num_shared_rows
            ),
            "sharing": check_choice("sharing", sharing, SHARING),
        }
        vars(self).update(self._options)
        self.scores = None if scores is None else check_scores("scores", scores)
        self._method = None if rows is None else check_method("rows", rows)

    @property
    def name(self):
        name = f"vocabulary of {self.num_rows}, {self.num_shared_rows} "
        name += "shared" if self.sharing == "modulo" else "near"
        return name if self._method is None else f"{name}, {self._method.name}"

    def start(self, seed=None, verbose=0):
        inner = self._method and self._method.start(seed, verbose)

        def from_table(table, sample_weight=None, **kwargs):
            def fit_rows(rows, weight):
                return inner.from_table(
                    rows, sample_weight=weight, **_policy(kwargs)
                )

            return PrunedVocabularyEmbedding.from_table(
                table,
                **self._options,
                scores=self.scores,
                fit_rows=inner and fit_rows,
                sample_weight=sample_weight,
                **kwargs,
            )

        return Fit({**self._options, "inner": inner}, from_table)

    def new_layer(self, fit, input_dim, output_dim, **kwargs):
        options = dict(fit.options)
        inner = options.pop("inner")
        if inner is not None:
            options["rows"] = self._method.new_layer(
                inner,
                self.num_rows + self.num_shared_rows,
                output_dim,
                **_policy(kwargs),
            )
        fit = Fit(options, fit.from_table)
        return super().new_layer(fit, input_dim, output_dim, **kwargs)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        rows = self.num_rows + self.num_shared_rows
        count = count_table_bytes
        if self._method is not None:
            count = self._method.litert_bytes
        places = count_place_bytes(input_dim, rows, self.sharing)
        return places + count(rows, output_dim, quantize)

    def reason_against(self, input_dim, output_dim):
        rows = self.num_rows + self.num_shared_rows
        if rows > input_dim:
            parts = f"{self.num_rows} + {self.num_shared_rows}"
            return f"it has fewer than {parts} rows"
        if self.scores is not None and len(self.scores) != input_dim:
            return f"`scores` has {len(self.scores)} ids"
        if self._method is None:
            return None
        return self._method.reason_against(rows, output_dim)


def _policy(kwargs):
    """The dtype option for an inner layer of rows."""
    return {"dtype": kwargs["dtype"]} if "dtype" in kwargs else {}
