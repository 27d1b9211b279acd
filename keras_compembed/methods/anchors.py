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

# Weights above the mean in a row: more gain little and take time.
_FURTHER = 8


class Anchors(Method):
    """Stores each row as a sparse combination of anchor vectors.

    All rows share the anchors, and each row has a few weights. Rows that gain
    most, weighted by `sample_weight`, get more of them. Weights can be trained
    further, in fixed places. See `keras_compembed.ANTEmbedding`.

    Example:

    >>> method = Anchors(100, mean_nonzeros=4)
    >>> method.name
    '100 anchors, 4 a row, 12 at most'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    98907

    Args:
        num_anchors: Integer, at most the rows of the table. Defaults to `100`.
        mean_nonzeros: Number, at most `num_anchors`. Weights per row on
            average. Below 1, some rows have none. Defaults to `8`.
        max_nonzeros: Optional integer from `mean_nonzeros` to `num_anchors`.
            The most weights of a row. Defaults to `None`: `mean_nonzeros + 8`,
            but at most `4 * mean_nonzeros`.
        iterations: Integer. How often the anchors are fitted. Defaults to `10`.

    Raises:
        ValueError: If an argument is out of range.
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
        # No L1 loss: the places are chosen already.
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
        # Placeholders: the final number of weights, and every anchor used.
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
        # An upper bound: the share of each row is known after the fit.
        offsets = np.arange(input_dim + 1) * self.max_nonzeros
        total, shape = self._total(input_dim), (self.num_anchors, output_dim)
        return litert_bytes(total, offsets, shape, quantize)

    def folded(self):
        return self

    def reason_against(self, input_dim, output_dim):
        if self.num_anchors > input_dim:
            return f"it has fewer rows than {self.num_anchors} anchors"
        return None
