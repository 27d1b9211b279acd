"""Tables as two small ones, for quotients and remainders of ids."""

from keras_compembed.baselines.quotient_remainder_embedding import OPERATIONS
from keras_compembed.baselines.quotient_remainder_embedding import (
    QuotientRemainderEmbedding,
)
from keras_compembed.methods.baseline_method import BaselineMethod
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int


class QuotientRemainder(BaselineMethod):
    """A row for the quotient of an id, joined with one for its remainder.

    See `keras_compembed.baselines.QuotientRemainderEmbedding`.

    Example:

    >>> method = QuotientRemainder(500)
    >>> method.name
    'quotient and remainder 500 multiply'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    33280

    Args:
        num_remainders: Integer. Rows for remainders (m).
        operation: `"multiply"`, `"add"` or `"concat"`. Defaults to
            `"multiply"`.

    Raises:
        ValueError: if a size is out of range or `operation` is unknown.
    """

    rows = QuotientRemainderEmbedding

    def __init__(self, num_remainders, operation="multiply"):
        self.num_remainders = check_positive_int(
            "num_remainders", num_remainders
        )
        self.operation = check_choice("operation", operation, OPERATIONS)

    @property
    def name(self):
        return f"quotient and remainder {self.num_remainders} {self.operation}"

    @property
    def options(self):
        return {
            "num_remainders": self.num_remainders,
            "operation": self.operation,
        }

    def reason_against(self, input_dim, output_dim):
        if self.num_remainders > input_dim:
            return f"it has fewer rows than {self.num_remainders} remainders"
        if self.operation == "concat" and output_dim == 1:
            return "a single column has no two parts"
        return None
