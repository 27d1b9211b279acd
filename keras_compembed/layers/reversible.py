"""What layers that also project vectors back to ids have in common."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_new_rows
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table


class Reversible:
    """Gives a look-up layer the options of `ReversibleEmbedding`."""

    def _set_reverse_options(self, tie_weights, reverse_dtype, logit_soft_cap):
        self.tie_weights = check_boolean("tie_weights", tie_weights)
        self.reverse_dtype = _check_dtype(reverse_dtype)
        if logit_soft_cap is not None:
            check_positive_number("logit_soft_cap", logit_soft_cap)
        self.logit_soft_cap = logit_soft_cap

    def build(self, input_shape=None):
        super().build(input_shape)
        if self.reverse_embedding is not None:
            self.reverse_embedding.build()

    def add_ids(self, vectors, reverse_vectors=None, **options):
        """Appends ids, see `CodeEmbedding.add_ids`.

        Args:
            vectors: Array `(new ids, output_dim)`.
            reverse_vectors: Array of the same shape, the rows of the second
                table. Must be given where weights are not tied, and only
                there. Defaults to `None`.
            **options: Same as in `CodeEmbedding.add_ids`.

        Returns:
            `range` of the new ids.

        Raises:
            ValueError: if `reverse_vectors` are missing, too many or of
                another shape, or the vectors of one table are refused.
        """
        if (reverse_vectors is None) != self.tie_weights:
            raise ValueError(
                "`reverse_vectors` must be given where weights are not tied, "
                f"and only there. Received: tie_weights={self.tie_weights} "
                f"and {'no' if reverse_vectors is None else 'some'} "
                "`reverse_vectors`."
            )
        if self.tie_weights:
            return super().add_ids(vectors, **options)
        self._require_built("add_ids")
        other = self.reverse_embedding
        vectors = check_new_rows(vectors, self.output_dim)
        if np.shape(reverse_vectors) != vectors.shape:
            raise ValueError(
                "`reverse_vectors` must have the shape of `vectors`, "
                f"{vectors.shape}. Received: {np.shape(reverse_vectors)}."
            )
        reverse_vectors = check_new_rows(
            reverse_vectors, self.output_dim, "reverse_vectors"
        )
        # Both before anything changes.
        rows = self._make_rows(vectors, **options)
        reverse_rows = other._make_rows(reverse_vectors, **options)
        other._append(reverse_rows, len(vectors))
        return self._append(rows, len(vectors))

    def logits(self, inputs):
        """Logits `(..., input_dim)` of vectors `(..., output_dim)`."""
        if self.tie_weights:
            logits = super().logits(inputs, self.reverse_dtype)
        else:
            logits = self.reverse_embedding.logits(inputs, self.reverse_dtype)
        return self._cap(logits)

    def top_k(self, queries, k):
        """The ids with the highest logits, see `CodeEmbedding.top_k`."""
        if self.tie_weights:
            scores, ids = super().top_k(queries, k, self.reverse_dtype)
        else:
            table = self.reverse_embedding
            scores, ids = table.top_k(queries, k, self.reverse_dtype)
        return self._cap(scores), ids

    def _cap(self, logits):
        cap = self.logit_soft_cap
        return logits if cap is None else tf.tanh(logits / cap) * cap

    def _set_mask(self, vectors, inputs):
        if self.mask_zero:
            vectors._keras_mask = keras.ops.not_equal(inputs, 0)
        return vectors

    def compute_mask(self, inputs, mask=None):
        # It is set on the result of the call.
        return None

    def compute_output_spec(self, inputs, reverse=False, training=False):
        spec = super().compute_output_spec(inputs, reverse, training)
        if reverse and self.reverse_dtype is not None:
            return keras.KerasTensor(spec.shape, dtype=self.reverse_dtype)
        return spec

    def get_config(self):
        return {
            **super().get_config(),
            "tie_weights": self.tie_weights,
            "reverse_dtype": self.reverse_dtype,
            "logit_soft_cap": self.logit_soft_cap,
        }


def check_reverse_table(table, reverse_table, tie_weights):
    """Checks the tables of `from_table`, of which the second may be None."""
    is_tied = reverse_table is None
    if tie_weights not in (None, is_tied):
        raise ValueError(
            "`reverse_table` must be given where weights are not tied, "
            f"and only there. Received: tie_weights={tie_weights} and "
            f"{'no' if is_tied else 'a'} `reverse_table`."
        )
    table = check_table(table)
    if not is_tied:
        reverse_table = check_table(reverse_table, "reverse_table")
        if reverse_table.shape != table.shape:
            raise ValueError(
                "`reverse_table` must have the shape of `table`, "
                f"{table.shape}. Received: {reverse_table.shape}."
            )
    return table, reverse_table, is_tied


def _check_dtype(dtype):
    """The name of a floating dtype, or None."""
    if dtype is None:
        return None
    try:
        name = keras.backend.standardize_dtype(dtype)
        is_float = keras.backend.is_float_dtype(name)
    except ValueError:
        is_float = False
    if not is_float:
        raise ValueError(
            "`reverse_dtype` must be None or a floating dtype such as "
            f"'float32'. Received: reverse_dtype={dtype!r}."
        )
    return name
