"""What layers that also project vectors back to ids have in common."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require


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

    def _stripped(self):
        new, other = super()._stripped(), self.reverse_embedding
        if other is not None:
            new.reverse_embedding.set_weights(other._stripped().get_weights())
        return new

    def _grown(self, vectors, reverse_vectors=None):
        new, other = super()._grown(vectors), self.reverse_embedding
        if other is not None:
            grown = other._grown(reverse_vectors)
            new.reverse_embedding.set_weights(grown.get_weights())
        return new

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
    require(
        tie_weights in (None, is_tied),
        "`reverse_table` must be given where weights are not tied alone.",
        tie_weights=tie_weights,
    )
    table = check_table(table)
    if not is_tied:
        reverse_table = check_table(reverse_table, "reverse_table")
        require(
            reverse_table.shape == table.shape,
            f"`reverse_table` must have the shape of `table`, {table.shape}.",
            shape=reverse_table.shape,
        )
    return table, reverse_table, is_tied


def _check_dtype(dtype):
    """The name of a floating dtype, or None."""
    if dtype is None:
        return None
    name = keras.backend.standardize_dtype(dtype)
    require(
        keras.backend.is_float_dtype(name),
        "`reverse_dtype` must be None or a floating dtype.",
        reverse_dtype=dtype,
    )
    return name
