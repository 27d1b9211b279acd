"""Tables as sums of rows that ids share by hash functions."""

from keras_compembed.baselines.hash_embedding import HashEmbedding
from keras_compembed.methods.baseline_method import BaselineMethod
from keras_compembed.utils.validation import check_positive_int


class Hashed(BaselineMethod):
    """A few shared rows for each id, chosen by hash functions.

    See `keras_compembed.baselines.HashEmbedding`.

    Example:

    >>> method = Hashed(500)
    >>> method.name
    'hashed 500 rows x 2'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    52032

    Args:
        num_rows: Integer. Rows that all ids share (B).
        num_hashes: Integer. Rows added up for an id (k). Defaults to `2`.
        num_importances: Optional integer. Defaults to `None`: each id has its
            own importances.

    Raises:
        ValueError: if a size is out of range.
    """

    rows = HashEmbedding

    def __init__(self, num_rows, num_hashes=2, num_importances=None):
        self.num_rows = check_positive_int("num_rows", num_rows)
        self.num_hashes = check_positive_int("num_hashes", num_hashes)
        if num_importances is not None:
            num_importances = check_positive_int(
                "num_importances", num_importances
            )
        self.num_importances = num_importances

    @property
    def name(self):
        name = f"hashed {self.num_rows} rows x {self.num_hashes}"
        if self.num_importances is None:
            return name
        return f"{name}, {self.num_importances} importances"

    @property
    def options(self):
        return {
            "num_rows": self.num_rows,
            "num_hashes": self.num_hashes,
            "num_importances": self.num_importances,
        }

    def reason_against(self, input_dim, output_dim):
        if self.num_rows > input_dim:
            return f"it has fewer rows than {self.num_rows} shared ones"
        return None
