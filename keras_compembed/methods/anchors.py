"""Tables as sparse combinations of anchors."""

import math

import numpy as np

from keras_compembed.anchors.l1 import L1
from keras_compembed.anchors.sparse_coding import learn_dictionary
from keras_compembed.anchors.sparse_rows import FixedRows
from keras_compembed.anchors.sparse_transform import SparseTransform
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.stores.anchors import litert_bytes
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import require

# More numbers than the mean in a row: more gain little, and take time.
_FURTHER = 8


class Anchors(Method):
    """A few numbers for each row, which weigh anchors that all rows share.

    Rows that gain most from a further number get it, times their
    `sample_weight`. The numbers can be trained further, in the places that
    they have. See `keras_compembed.ANTEmbedding`.

    Example:

    >>> method = Anchors(100, mean_nonzeros=4)
    >>> method.name
    '100 anchors, 4 a row, 12 at most'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    98907

    Args:
        num_anchors: Integer, at most the rows of the table. Defaults to
            `100`.
        mean_nonzeros: Number, at most `num_anchors`. Numbers of a row, on
            average; with less than 1, some rows have none. Defaults to `8`.
        max_nonzeros: Optional integer from `mean_nonzeros` to `num_anchors`.
            Numbers of a row at most. Defaults to `None`: 8 more than
            `mean_nonzeros`, and up to four times as many.
        iterations: Integer, how often anchors are fitted. Defaults to `10`.
    """

    rows = ANTEmbedding
    combines = is_by_row = True

    def __init__(
        self,
        num_anchors: int = 100,
        mean_nonzeros: float = 8,
        max_nonzeros: int | None = None,
        iterations: int = 10,
    ):
        self.num_anchors = check_positive_int("num_anchors", num_anchors)
        check_positive_number("mean_nonzeros", mean_nonzeros)
        require(
            mean_nonzeros <= num_anchors,
            "`mean_nonzeros` must be at most `num_anchors`.",
            mean_nonzeros=mean_nonzeros,
            num_anchors=num_anchors,
        )
        self.mean_nonzeros = mean_nonzeros
        if max_nonzeros is None:
            most = min(4 * mean_nonzeros, mean_nonzeros + _FURTHER)
            max_nonzeros = min(math.ceil(most), num_anchors)
        self.max_nonzeros = check_positive_int(
            "max_nonzeros",
            max_nonzeros,
            minimum=math.ceil(mean_nonzeros),
            maximum=num_anchors,
        )
        self.iterations = check_positive_int(
            "iterations", iterations, minimum=0
        )

    @property
    def name(self):
        name = f"{self.num_anchors} anchors, {self.mean_nonzeros:g} a row"
        if self.max_nonzeros > self.mean_nonzeros:
            name += f", {self.max_nonzeros} at most"
        return name

    def start(self, seed=None, verbose=0):
        seed = check_seed(seed)
        # What fits has been chosen: training shrinks nothing.
        l1 = L1(0, non_negative=False)
        options = {"num_anchors": self.num_anchors, "l1": l1}

        def from_table(table, sample_weight=None, **kwargs):
            total = self._total(len(table))
            is_shared = self.max_nonzeros > self.mean_nonzeros
            transform, anchors = learn_dictionary(
                table,
                self.num_anchors,
                self.max_nonzeros,
                non_negative=False,
                iterations=self.iterations,
                sample_weight=sample_weight,
                seed=seed,
                verbose=verbose,
                total_nonzeros=total if is_shared else None,
            )
            layer = self.new_layer(fit, *table.shape, **kwargs)
            layer.anchors.assign(anchors)
            layer.assign_transform(transform.fill(total, self.max_nonzeros))
            return layer

        fit = Fit(options, from_table)
        return fit

    def quicker(self, effort):
        iterations = max(1, round(self.iterations * effort))
        return Anchors(
            self.num_anchors, self.mean_nonzeros, self.max_nonzeros, iterations
        )

    def _total(self, input_dim):
        return max(1, int(input_dim * self.mean_nonzeros))

    def new_layer(self, fit, input_dim, output_dim, **kwargs):
        total = self._total(input_dim)
        rows = FixedRows(total, self.max_nonzeros, trainable=True)
        kwargs["transform"] = rows
        layer = super().new_layer(fit, input_dim, output_dim, **kwargs)
        # As many numbers as rows will have, and each anchor in some row.
        offsets = np.arange(input_dim + 1) * total // input_dim
        rows = np.repeat(np.arange(input_dim), np.diff(offsets))
        columns = (rows + np.arange(total) - offsets[rows]) % self.num_anchors
        order = np.lexsort((columns, rows))
        ones = np.ones(total, "float32")
        transform = SparseTransform(
            offsets, columns[order], ones, self.num_anchors
        )
        layer.assign_transform(transform)
        return layer

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        # The most they may take: how numbers are shared, rows will tell.
        offsets = np.arange(input_dim + 1) * self.max_nonzeros
        total, shape = self._total(input_dim), (self.num_anchors, output_dim)
        return litert_bytes(total, offsets, shape, quantize)

    def folded(self):
        return self

    def reason_against(self, input_dim, output_dim):
        if self.num_anchors > input_dim:
            return f"it has fewer rows than {self.num_anchors} anchors"
        return None
