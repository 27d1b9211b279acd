"""Tables as sparse combinations of anchors."""

import numpy as np

from keras_compembed.export.packed_offsets import PackedOffsets
from keras_compembed.layers.ant_embed_reduce import ANTEmbedReduce
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.transforms.l1 import L1
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.utils.sizes import count_litert_bytes
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed

_VALUE_BYTES = {None: 4, "float16": 2, "int8": 1, "int8_codebooks": 4}


class Anchors(Method):
    """A few numbers for each row, which weigh anchors that all rows share.

    See `keras_compembed.ANTEmbedding`. The numbers of rows can be trained
    further; no row gets more of them than it had.

    Example:

    >>> method = Anchors(100, max_nonzeros=4)
    >>> method.name
    '100 anchors, 4 a row'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    97031

    Args:
        num_anchors: Integer, at most the rows of the table. Defaults to
            `100`.
        max_nonzeros: Integer, at most `num_anchors`. Numbers in a row.
            Defaults to `8`.
        iterations: Integer, how often anchors are fitted. Defaults to `10`.

    Raises:
        ValueError: if a number is out of range.
    """

    rows = ANTEmbedding
    reduce = ANTEmbedReduce
    is_by_row = True

    def __init__(self, num_anchors=100, max_nonzeros=8, iterations=10):
        self.num_anchors = check_positive_int("num_anchors", num_anchors)
        self.max_nonzeros = check_positive_int(
            "max_nonzeros", max_nonzeros, maximum=num_anchors
        )
        self.iterations = check_positive_int(
            "iterations", iterations, minimum=0
        )

    @property
    def name(self):
        return f"{self.num_anchors} anchors, {self.max_nonzeros} a row"

    def start(self, seed=None, verbose=0):
        seed = check_seed(seed)
        options = {
            "num_anchors": self.num_anchors,
            # What fits has been chosen: training shrinks nothing.
            "l1": L1(0, non_negative=False),
            "storage": SparseRows(self.max_nonzeros),
        }

        def from_table(table, sample_weight=None, **kwargs):
            return ANTEmbedding.from_table(
                table,
                max_nonzeros=self.max_nonzeros,
                iterations=self.iterations,
                sample_weight=sample_weight,
                seed=seed,
                verbose=verbose,
                **options,
                **kwargs,
            )

        return Fit(options, from_table)

    def quicker(self, effort):
        iterations = max(1, round(self.iterations * effort))
        return Anchors(self.num_anchors, self.max_nonzeros, iterations)

    def new_layer(self, cls, fit, input_dim, output_dim, **kwargs):
        layer = cls(input_dim, output_dim, **fit.options, **kwargs)
        layer.build()
        # As many numbers as rows will have, and each anchor in some row.
        places = np.arange(input_dim)[:, None] + np.arange(self.max_nonzeros)
        columns = np.sort(places % self.num_anchors, axis=1)
        layer.assign_transform(
            SparseTransform(
                np.arange(input_dim + 1) * self.max_nonzeros,
                columns.ravel(),
                np.ones(columns.size, "float32"),
                self.num_anchors,
            )
        )
        return layer

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        numbers = input_dim * self.max_nonzeros
        column = 1 if self.num_anchors <= 2**8 else 2
        if self.num_anchors > 2**16:
            column = 4
        offsets = PackedOffsets(np.arange(input_dim + 1) * self.max_nonzeros)
        # One number of no row ends the list.
        of_rows = (numbers + 1) * (column + _VALUE_BYTES[quantize])
        anchors = count_litert_bytes(self.num_anchors * output_dim, quantize)
        return of_rows + offsets.nbytes + anchors

    def reason_against(self, input_dim, output_dim):
        if self.num_anchors > input_dim:
            return f"it has fewer rows than {self.num_anchors} anchors"
        return None
