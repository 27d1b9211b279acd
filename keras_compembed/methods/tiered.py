"""Tables with exact rows for some ids; all others share."""

import copy

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
from keras_compembed.utils.validation import require


class Tiered(Method):
    """Stores the rows of frequent ids exactly; all other ids share.

    The other ids share a few rows, or the codebooks or anchors of a second
    method. The `sample_weight` of `for_table`, e.g. counts, chooses the
    frequent ids; without it, they are the first ids. See
    `keras_compembed.PrunedVocabularyEmbedding`.

    Example:

    >>> method = Tiered(
    ...     500, exact=kc.methods.Quantized(4), rest=kc.methods.Codes(8, 16)
    ... )
    >>> method.name
    '500 rows int4, rest codes 8x16'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    65088
    >>> Tiered(2_000, rest=50).name
    '2000 rows, 50 shared'

    Args:
        num_rows: Integer. The number of ids that keep their rows.
        exact: Optional `Method` to store these rows, such as `Quantized(4)`.
            Defaults to `None`: floats, which exported files quantize by
            `quantize`.
        rest: `Method` to store the rows of all other ids, such as
            `Codes(16, 16)`, or integer, the number of rows that they share.
            Defaults to `1`.
        sharing: `"modulo"` or `"nearest"`, which row an id shares. Not used if
            `rest` is a method. Defaults to `"modulo"`.
        scores: Optional array `(input_dim,)`, such as counts or TF-IDF. Ids
            with the highest scores keep their rows. Defaults to `None`: the
            `sample_weight`.

    Raises:
        ValueError: If an argument is out of range.

    References:
        - [Baevski & Auli, 2019](https://arxiv.org/abs/1809.10853), wider rows
          for frequent words
        - [Kang et al., 2020](https://arxiv.org/abs/2002.08530), more codewords
          for frequent items
    """

    rows = PrunedVocabularyEmbedding
    combines = reverses = True

    def __init__(
        self,
        num_rows: int,
        exact: Method | None = None,
        rest: Method | int = 1,
        sharing: str = "modulo",
        scores: ArrayLike | None = None,
    ):
        self.num_rows = check_positive_int("num_rows", num_rows)
        self.exact, self.rest = exact, rest
        self.sharing = check_choice("sharing", sharing, SHARING)
        self.scores = None if scores is None else check_scores("scores", scores)
        if not isinstance(rest, Method):
            self.rest = check_positive_int("rest", rest)
        for name, method in self._parts().items():
            require(
                check_method(name, method).is_plain,
                f"`{name}` must not use `for_table` or `recode_every`.",
                **{name: method},
            )

    def _parts(self):
        """The methods of both tiers, by argument."""
        parts = {"exact": self.exact}
        if isinstance(self.rest, Method):
            parts["rest"] = self.rest
        return {x: method for x, method in parts.items() if method is not None}

    @property
    def _num_shared(self):
        return 0 if isinstance(self.rest, Method) else self.rest

    @property
    def name(self):
        name = f"{self.num_rows} rows"
        if self.exact is not None:
            name += f" {self.exact.name}"
        if not self._num_shared:
            return f"{name}, rest {self.rest.name}"
        return f"{name}, {self.rest} " + (
            "shared" if self.sharing == "modulo" else "near"
        )

    def start(self, seed=None, verbose=0):
        fits = {x: y.start(seed, verbose) for x, y in self._parts().items()}
        options = {"num_rows": self.num_rows, "sharing": self.sharing}
        options["num_shared_rows"] = self._num_shared or 1

        def from_table(table, sample_weight=None, **kwargs):
            def fit(name):
                def from_rows(rows, weight):
                    return fits[name].from_table(
                        rows, sample_weight=weight, **_policy(kwargs)
                    )

                return from_rows if name in fits else None

            return PrunedVocabularyEmbedding.from_table(
                table,
                **options,
                scores=self.scores,
                fit_rows=fit("exact"),
                fit_rest=fit("rest"),
                sample_weight=sample_weight,
                **kwargs,
            )

        return Fit({**options, "fits": fits}, from_table)

    def new_layer(self, fit, input_dim, output_dim, **kwargs):
        options = dict(fit.options)
        numbers = self._numbers(input_dim)
        for name, each in options.pop("fits").items():
            argument = "rows" if name == "exact" else name
            options[argument] = self._parts()[name].new_layer(
                each, numbers[name], output_dim, **_policy(kwargs)
            )
        fit = Fit(options, fit.from_table)
        return super().new_layer(fit, input_dim, output_dim, **kwargs)

    def _numbers(self, input_dim):
        """The rows of both tiers, by argument."""
        exact = self.num_rows + self._num_shared
        return {"exact": exact, "rest": input_dim - self.num_rows}

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        numbers, sharing = self._numbers(input_dim), self.sharing
        sharing = sharing if self._num_shared else "modulo"
        total = count_place_bytes(input_dim, numbers["exact"], sharing)
        if self.exact is None:
            total += count_table_bytes(numbers["exact"], output_dim, quantize)
        return total + sum(
            method.litert_bytes(numbers[name], output_dim, quantize)
            for name, method in self._parts().items()
        )

    def tuned(self):
        return self._with(lambda method: method.tuned())

    def quicker(self, effort):
        return self._with(lambda method: method.quicker(effort))

    def _with(self, change):
        """The same with changed methods."""
        new = copy.copy(self)
        for name, method in self._parts().items():
            setattr(new, name, change(method))
        return new

    def reason_against(self, input_dim, output_dim):
        # At least one row for the rest.
        shared = self._num_shared
        if self.num_rows + (shared or 1) > input_dim:
            parts = f"{self.num_rows} + {shared or 1}"
            return f"it has fewer than {parts} rows"
        if self.scores is not None and len(self.scores) != input_dim:
            return f"`scores` has {len(self.scores)} ids"
        reasons = (
            method.reason_against(self._numbers(input_dim)[name], output_dim)
            for name, method in self._parts().items()
        )
        return next(filter(None, reasons), None)


def _policy(kwargs):
    """The dtype option for a layer of rows."""
    return {"dtype": kwargs["dtype"]} if "dtype" in kwargs else {}
