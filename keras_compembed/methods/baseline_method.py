"""Base of the methods whose layer is an `EmbeddingBaseline`."""

import abc

from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.utils.validation import check_seed


class BaselineMethod(Method):
    """Base of the methods whose layer is an `EmbeddingBaseline`."""

    @property
    @abc.abstractmethod
    def options(self):
        """Dict, arguments of the layer besides its sizes."""

    def start(self, seed=None, verbose=0):
        seed = check_seed(seed)

        def from_table(table, sample_weight=None, **kwargs):
            return self.rows.from_table(
                table,
                sample_weight=sample_weight,
                seed=seed,
                verbose=verbose,
                **self.options,
                **kwargs,
            )

        return Fit({**self.options, "seed": seed}, from_table)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        layer = self.rows(input_dim, output_dim, **self.options)
        return layer.litert_bytes(quantize)
