"""What layers that sum or average the vectors of ids have in common."""

import keras
import tensorflow as tf


class EmbedReduce:
    """Makes a look-up layer sum or average the vectors of each row of ids."""

    @property
    def combiner(self):
        """`"mean"`, `"sum"` or `"sqrtn"`."""
        return self._combiner.combiner

    @property
    def empty_value(self):
        """Float, what a row without ids gives."""
        return self._combiner.empty_value

    def call(
        self, inputs, weights=None, mask=None, reverse=False, training=False
    ):
        if reverse:
            return self.logits(inputs)
        groups = self._combiner.groups(
            inputs, weights, mask, self._dtype_of_sums
        )
        sums = self._sums_of_groups(groups, training)
        sums = self._combiner.finish(sums, groups)
        return tf.cast(sums, self.compute_dtype)

    def compute_mask(self, inputs, mask=None):
        return self._combiner.output_mask(inputs, mask)

    def compute_output_shape(
        self, input_shape, weights_shape=None, reverse=False
    ):
        if reverse:
            return super().compute_output_shape(input_shape, reverse)
        return (*input_shape[:1], self.output_dim)

    def compute_output_spec(
        self, inputs, weights=None, mask=None, reverse=False, training=False
    ):
        if reverse:
            return super().compute_output_spec(inputs, reverse, training)
        self._combiner.check_shapes(inputs, weights, mask)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def get_config(self):
        return {**super().get_config(), **self._combiner.get_config()}
