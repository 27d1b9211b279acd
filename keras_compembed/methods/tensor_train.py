"""Tables as tensor trains."""

from keras_compembed.baselines.tensor_train_embedding import (
    TensorTrainEmbedding,
)
from keras_compembed.methods.baseline_method import BaselineMethod
from keras_compembed.utils.validation import check_positive_int


class TensorTrain(BaselineMethod):
    """A product of small matrices, one for each digit of an id.

    See `keras_compembed.baselines.TensorTrainEmbedding`.

    Example:

    >>> method = TensorTrain(rank=32)
    >>> method.name
    'tensor train rank 32'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    95616

    Args:
        rank: Integer. Size of the matrices between two factors. Defaults to
            `16`.
        row_factors: Optional tuple of integers, see the layer.
        column_factors: Optional tuple of integers, see the layer.

    Raises:
        ValueError: if `rank` is no positive integer.
    """

    rows = TensorTrainEmbedding

    def __init__(self, rank=16, row_factors=None, column_factors=None):
        self.rank = check_positive_int("rank", rank)
        self.row_factors = row_factors
        self.column_factors = column_factors

    @property
    def name(self):
        name = f"tensor train rank {self.rank}"
        factors = [
            "x".join(map(str, factors))
            for factors in (self.row_factors, self.column_factors)
            if factors is not None
        ]
        return " ".join([name, *factors])

    @property
    def options(self):
        return {
            "rank": self.rank,
            "row_factors": self.row_factors,
            "column_factors": self.column_factors,
        }

    def reason_against(self, input_dim, output_dim):
        try:
            self.rows(input_dim, output_dim, **self.options)
        except ValueError as error:
            return f"factors do not fit it: {error}"
        return None
